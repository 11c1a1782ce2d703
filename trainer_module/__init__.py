"""The program that every training process runs, and the words that the floors above share with it.

Importing this package imports no TensorFlow: `job`, `cluster` and `compatibility` are plain Python, the rest is loaded
where training happens.

A module's `run_fn` asks here for the strategy that was made for it:

```python
from tfx_distribute.trainer_module import get_strategy

def run_fn(fn_args):
    with get_strategy().scope():
        model = ...
```
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_distribute.trainer_module.module import ModelContext as ModelContext
    from tfx_distribute.trainer_module.strategy import get_strategy as get_strategy

__all__ = ["ModelContext", "get_strategy"]


def __getattr__(name: str) -> Any:
    """Loads the two names that user modules need on first use, since one of them stands on TensorFlow."""
    if name == "get_strategy":
        from tfx_distribute.trainer_module.strategy import get_strategy

        return get_strategy
    if name == "ModelContext":
        from tfx_distribute.trainer_module.module import ModelContext

        return ModelContext
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

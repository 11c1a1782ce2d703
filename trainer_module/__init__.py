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

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_distribute.trainer_module.strategies.factory import get_strategy as get_strategy
    from tfx_distribute.trainer_module.user_code.module_loader import ModelContext as ModelContext
    from tfx_distribute.trainer_module.user_code.task import Task as Task

# What user modules need, each loaded on first use: one of them stands on TensorFlow.
_HOMES = {"ModelContext": "user_code.module_loader", "Task": "user_code.task", "get_strategy": "strategies.factory"}

__all__ = ["ModelContext", "Task", "get_strategy"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

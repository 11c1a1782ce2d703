"""Contains the program of a training process, and definitions that upper layers share.

Importing this package does not import TensorFlow: the modules in `job` are plain
Python, and the rest is loaded only where training happens.

A module's `run_fn` gets its strategy here:

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

# Names for user modules, each loaded on first use because one of them needs TensorFlow.
_MODULES = {"ModelContext": "user_code.module_loader", "Task": "user_code.task", "get_strategy": "strategies.factory"}

__all__ = ["ModelContext", "Task", "get_strategy"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

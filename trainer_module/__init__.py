"""Runs training processes, and provides what user modules import.

Importing this package imports no TensorFlow. `errors` and the package `job` are plain
Python, so that pipelines and the command line can share them; the rest is loaded where
training runs.

A module's `run_fn` gets the strategy that was created for it from `get_strategy`:

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

# Loaded on first use, because `get_strategy` needs TensorFlow.
_MODULES = {
    "ModelContext": "user_code.module_loader",
    "Task": "user_code.task",
    "get_strategy": "strategies.factory",
}

__all__ = ["ModelContext", "Task", "get_strategy"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

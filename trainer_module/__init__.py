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

from typing import TYPE_CHECKING

from tfx_distribute.trainer_module import lazy_names

if TYPE_CHECKING:
    from tfx_distribute.trainer_module.strategies.factory import get_strategy as get_strategy
    from tfx_distribute.trainer_module.user_code.module_loader import ModelContext as ModelContext
    from tfx_distribute.trainer_module.user_code.task import Task as Task

# `get_strategy` needs TensorFlow.
__all__, __getattr__, __dir__ = lazy_names.export(__name__)

"""TFX components for distributed training.

`Sharder` writes transformed examples as shards, in place of the materialising of `tfx.components.Transform`; `Trainer`,
`Evaluator` and `Pusher` replace those of `tfx.components`:

```python
from tfx_distribute.components import Evaluator, Pusher, Sharder, Trainer
```
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_distribute.components.evaluator.component import Evaluator as Evaluator
    from tfx_distribute.components.pusher.component import Pusher as Pusher
    from tfx_distribute.components.sharder.component import Sharder as Sharder
    from tfx_distribute.components.trainer.component import Trainer as Trainer

# Each loaded on first use: the processes of Beam, which need what is below this package, load no TFX.
_HOMES = {
    "Evaluator": "evaluator.component",
    "Pusher": "pusher.component",
    "Sharder": "sharder.component",
    "Trainer": "trainer.component",
}

__all__ = ["Evaluator", "Pusher", "Sharder", "Trainer"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

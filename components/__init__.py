"""Provides TFX components for distributed training.

`Trainer`, `Evaluator` and `Pusher` replace the components of the same names in
`tfx.components`. `Sharder` writes transformed examples as balanced shards, instead of
`tfx.components.Transform(materialize=True)`. `CsvExampleGen`, `ImportExampleGen` and
`ParquetExampleGen` read data files.

```python
from tfx_distribute.components import Evaluator, Pusher, Sharder, Trainer
```

docs/python-api.md shows a pipeline that uses them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_distribute.components.evaluator.component import Evaluator as Evaluator
    from tfx_distribute.components.example_gen.component import CsvExampleGen as CsvExampleGen
    from tfx_distribute.components.example_gen.component import ImportExampleGen as ImportExampleGen
    from tfx_distribute.components.example_gen.component import ParquetExampleGen as ParquetExampleGen
    from tfx_distribute.components.pusher.component import Pusher as Pusher
    from tfx_distribute.components.sharder.component import Sharder as Sharder
    from tfx_distribute.components.trainer.component import Trainer as Trainer

# Loaded on first use: Beam's worker processes import modules of this package, and must
# not load TFX.
_MODULES = {
    "CsvExampleGen": "example_gen.component",
    "Evaluator": "evaluator.component",
    "ImportExampleGen": "example_gen.component",
    "ParquetExampleGen": "example_gen.component",
    "Pusher": "pusher.component",
    "Sharder": "sharder.component",
    "Trainer": "trainer.component",
}

__all__ = [
    "CsvExampleGen",
    "Evaluator",
    "ImportExampleGen",
    "ParquetExampleGen",
    "Pusher",
    "Sharder",
    "Trainer",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Provides TFX components for distributed training.

`Trainer`, `Evaluator`, `ExampleValidator` and `Pusher` replace the components of the
same names in `tfx.components`. `Sharder` writes transformed examples as balanced
shards, instead of `tfx.components.Transform(materialize=True)`. `Tuner` searches for
hyperparameters, as `Search` and `ValueRange` describe. `CsvExampleGen`,
`ImageExampleGen`, `ImportExampleGen` and `ParquetExampleGen` read data files.

```python
from tfx_distribute.components import Evaluator, Pusher, Sharder, Trainer
```

docs/python-api.md shows a pipeline that uses them.
"""

from typing import TYPE_CHECKING

from tfx_distribute.trainer_module import lazy_names

if TYPE_CHECKING:
    from tfx_distribute.components.evaluator.component import Evaluator as Evaluator
    from tfx_distribute.components.example_gen.component import CsvExampleGen as CsvExampleGen
    from tfx_distribute.components.example_gen.component import ImageExampleGen as ImageExampleGen
    from tfx_distribute.components.example_gen.component import ImportExampleGen as ImportExampleGen
    from tfx_distribute.components.example_gen.component import ParquetExampleGen as ParquetExampleGen
    from tfx_distribute.components.example_validator.component import ExampleValidator as ExampleValidator
    from tfx_distribute.components.example_validator.rules import ValidationRules as ValidationRules
    from tfx_distribute.components.pusher.component import Pusher as Pusher
    from tfx_distribute.components.sharder.component import Sharder as Sharder
    from tfx_distribute.components.trainer.component import Trainer as Trainer
    from tfx_distribute.components.tuner.component import Tuner as Tuner
    from tfx_distribute.components.tuner.search import Search as Search
    from tfx_distribute.components.tuner.search import ValueRange as ValueRange
    from tfx_distribute.trainer_module.job.warm_start import WarmStart as WarmStart

# Beam's worker processes import modules of this package, and must not load TFX.
__all__, __getattr__, __dir__ = lazy_names.export(__name__)

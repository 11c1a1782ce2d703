"""Names the section `tune` of pipeline files: a search for hyperparameters."""

from tfx_distribute.components.tuner.search import Search
from tfx_distribute.components.tuner.value_range import ValueRange

Tune = Search
TuneValues = ValueRange

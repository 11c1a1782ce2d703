"""Defines the section `tune` of pipeline files: a search for hyperparameters."""

import math
from typing import Literal

from pydantic import Field, FiniteFloat, field_validator

from tfx_distribute.components.tuner import search as search_lib
from tfx_distribute.pipelines.spec.base import Scalar, ScalarValue, SpecModel

TUNER = "Tuner"  # id of the component


class TuneValues(SpecModel):
    """Values that the search may give a hyperparameter.

    Write `values`, or `min` and `max`. Their type is that of the default in
    `trainer.hparams`.
    """

    values: list[ScalarValue] = Field(default_factory=list)
    """The values."""
    min: int | FiniteFloat | None = None
    """Smallest value."""
    max: int | FiniteFloat | None = None
    """Largest value."""
    step: int | FiniteFloat | None = None
    """Distance between two values; with the sampling `log`, the factor between them.
    Default: any value of a range, and for whole numbers 1."""
    sampling: Literal["linear", "log", "reverse_log"] = "linear"
    """`log` tries each order of magnitude as often as any other, `reverse_log` more
    values close to `max`."""

    @field_validator("values")
    @classmethod
    def _check_finite(cls, values: list[Scalar]) -> list[Scalar]:
        odd = [value for value in values if isinstance(value, float) and not math.isfinite(value)]
        if odd:
            raise ValueError(f"{odd[0]} is not allowed; write finite numbers")
        return values


class Tune(SpecModel):
    """Tuner, which searches for hyperparameters with KerasTuner's oracles.

    Each trial is a training as the Trainer's, with other values of `trainer.hparams`.
    """

    objective: str
    """Metric of the training to compare trials by, as the Trainer reports it, such as
    `val_accuracy`; its value at the end of a trial counts."""
    direction: Literal["min", "max"] | None = None
    """`min` or `max`. Default: `min` for names that end with `loss`, `max` for those
    that end with `accuracy` or `auc`; required for others."""
    oracle: Literal["random", "bayesian", "hyperband"] = "random"
    """KerasTuner's oracle that chooses the values. `hyperband` trains many for a few
    epochs and continues the best ones."""
    max_trials: int = Field(0, ge=0)
    """Number of trials. Required, but for `hyperband`, which decides on it."""
    num_parallel_trials: int = Field(1, ge=1, le=1000)
    """Trials that train at the same time. On one machine they share its devices."""
    max_consecutive_failed_trials: int = Field(3, ge=1)
    """Trials in a row that may fail before the search does."""
    epochs: int = Field(0, ge=0)
    """Epochs of a trial, with `hyperband` of the longest one. Default: those of the
    Trainer."""
    train_steps: int = Field(0, ge=0)
    """Training steps of a trial, instead of `epochs`. Default: those of the Trainer."""
    factor: int = Field(3, ge=2)
    """`hyperband` continues one of so many trials, for so many times the epochs."""
    hyperband_iterations: int = Field(1, ge=1)
    """How often the whole of `hyperband` runs."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of the oracle."""
    space: dict[str, TuneValues] = Field(min_length=1)
    """Name of a hyperparameter in `trainer.hparams` -> the values to search among."""

    @property
    def search(self) -> search_lib.Search:
        """Returns the search, as the component takes it."""
        return search_lib.from_mapping({**self.model_dump(), "direction": self.direction or ""})

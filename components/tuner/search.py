"""Describes a search for hyperparameters, as one JSON document.

It is an execution property of the Tuner. Imports neither TFX nor TensorFlow.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from tfx_distribute.components.spec_model import Scalar, ScalarValue, SpecModel
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.parameters import GROUPS
from tfx_distribute.trainer_module.job.training_job import TrainingOptions

Direction = Literal["", "min", "max"]

# Settings that do not affect which trials are made, so that a changed one does not
# discard a search that was interrupted.
RESULT_NEUTRAL = ("max_trials", "num_parallel_trials", "max_consecutive_failed_trials")
_TYPE_NAMES: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_ROUNDING = Decimal("1e-8")  # (max - min) / step may be a little less than a whole number


class ValueRange(SpecModel):
    """Values that the search may give a hyperparameter.

    Write `values`, or `min` and `max`. Their type is that of the default in
    `trainer.hparams`.
    """

    values: list[ScalarValue] = Field(default_factory=list, strict=False)  # a tuple becomes a list
    """The values."""
    min: int | float | None = None
    """Smallest value."""
    max: int | float | None = None
    """Largest value."""
    step: int | float | None = None
    """Distance between two values; with the sampling `log`, the factor between them.
    Default: any value of a range, and for whole numbers 1."""
    sampling: Literal["linear", "log", "reverse_log"] = "linear"
    """`log` tries each order of magnitude as often as any other, `reverse_log` more
    values close to `max`."""


class Search(SpecModel):
    """Search for hyperparameters with KerasTuner's oracles.

    Each trial is a training as the Trainer's, with other values of `trainer.hparams`.
    """

    objective: str
    """Metric of the training to compare trials by, as the Trainer reports it, such as
    `val_accuracy`; its value at the end of a trial counts."""
    space: dict[str, ValueRange] = Field(min_length=1)
    """Name of a hyperparameter in `trainer.hparams` -> the values to search among."""
    direction: Direction = ""
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
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of the oracle."""

    @property
    def goal(self) -> Direction:
        """Returns `min` or `max`; empty if the metric's name implies neither."""
        name = self.objective.lower()
        implied: Direction = "min" if name.endswith("loss") else "max" if name.endswith(("accuracy", "auc")) else ""
        return self.direction or implied

    def decisive_settings(self) -> dict[str, Any]:
        """Returns what affects which trials are made, for a fingerprint."""
        return self.model_dump(exclude=set(RESULT_NEUTRAL))


def trial_options(search: Search, options: TrainingOptions) -> TrainingOptions:
    """Returns the training options of a trial: the Trainer's, and a length of its own.

    Raises a ConfigurationError if `export_best` would keep a trial's worst evaluation.
    """
    options = replace(options, profile_steps="")  # of the training
    if search.epochs:
        options = with_epochs(options, search.epochs)
    elif search.train_steps:
        options = replace(options, epochs=0, train_steps=search.train_steps)
    if options.export_best == search.objective and (options.export_mode or "min") != search.goal:
        raise ConfigurationError(
            f"export_mode: is {options.export_mode or 'min'}, and the search takes the trial with the {search.goal} of "
            f"{search.objective}; write export_mode: {search.goal}, or another tune.direction"
        )
    if search.oracle == "hyperband" and not (options.epochs or options.steps_per_epoch):
        raise ConfigurationError(
            "tune.epochs: is missing; hyperband gives poor trials fewer epochs than others; write the epochs of the longest"
        )
    return options


def with_epochs(options: TrainingOptions, epochs: int) -> TrainingOptions:
    """Returns training options for a number of epochs.

    An epoch is one pass over the examples, or `steps_per_epoch` steps.
    """
    if options.steps_per_epoch:
        return replace(options, train_steps=epochs * options.steps_per_epoch)
    return replace(options, epochs=epochs, train_steps=0)


def count_epochs(options: TrainingOptions) -> int:
    """Returns the number of epochs of training options; 0 if they have no length."""
    return options.epochs or math.ceil(options.train_steps / (options.steps_per_epoch or options.train_steps or 1))


def check(search: Search, hparams: Mapping[str, Any]) -> None:
    """Checks a search against the hyperparameters of a pipeline."""
    if not search.goal:
        raise ConfigurationError(
            f"tune.direction: is missing; {search.objective!r} does not say whether more is better; write min or max"
        )
    if search.epochs and search.train_steps:
        raise ConfigurationError("tune.train_steps: the length is given twice; write epochs or train_steps")
    if search.oracle == "hyperband":
        if search.max_trials:
            raise ConfigurationError(
                "tune.max_trials: hyperband decides on the number of trials, by epochs and factor; leave it out"
            )
        if search.train_steps:
            raise ConfigurationError("tune.train_steps: hyperband counts in epochs; write tune.epochs instead")
    elif not search.max_trials:
        raise ConfigurationError(f"tune.max_trials: is missing; write how many trials {search.oracle} may make")
    for name, values in search.space.items():
        if any(name == field.name for group in GROUPS for field in fields(group)):
            raise ConfigurationError(
                f"tune.space.{name}: is a pipeline parameter, which is the same in all trials; write names of "
                "hyperparameters that build_model reads from context.hparams"
            )
        if name not in hparams:
            known = ", ".join(sorted(hparams)) or "none"
            raise ConfigurationError(
                f"tune.space.{name}: trainer.hparams has no such hyperparameter; it has {known}; add {name} there, with its "
                "default"
            )
        problem = _find_problem(values, hparams[name])
        if problem:
            raise ConfigurationError(f"tune.space.{name}: {problem}")


def _find_problem(values: ValueRange, default: Any) -> str:
    """Returns what is wrong with a hyperparameter's values; empty if nothing is."""
    kind = type(default)
    if kind not in _TYPE_NAMES:
        return f"its default in trainer.hparams, {default!r}, is not text, a number, or true or false; write such a default"
    bounds = {name: getattr(values, name) for name in ("min", "max", "step") if getattr(values, name) is not None}
    if values.values and (bounds or values.sampling != "linear"):
        return "has values and a range; write either values, or min and max"
    wrong = [repr(value) for value in values.values if not _fits(value, kind)]
    wrong += [f"{name}: {value!r}" for name, value in bounds.items() if kind in (int, float) and not _fits(value, kind)]
    if wrong:
        return f"{wrong[0]} is not {_TYPE_NAMES[kind]}, as its default in trainer.hparams, {default!r}, is"
    if values.values:
        return ""
    if kind not in (int, float):
        return f"its default in trainer.hparams, {default!r}, is not a number; write values: [...]"
    if values.min is None or values.max is None:
        return "write values, or min and max"
    if values.min >= values.max:
        return f"min is {values.min}, and max is {values.max}; write a larger max"
    if values.sampling != "linear" and values.min <= 0:
        return f"min is {values.min}, and sampling {values.sampling} needs more than 0; write a larger min"
    smallest = 1 if values.sampling != "linear" else 0
    if values.step is not None and values.step <= smallest:
        return f"step is {values.step}; write more than {smallest} with sampling {values.sampling}"
    return ""


def _fits(value: Scalar, kind: type) -> bool:
    """Returns True if a value has a type; a whole number is a number too."""
    return type(value) is kind or (kind is float and type(value) is int)


def list_steps(values: ValueRange) -> list[float]:
    """Returns the numbers of a range with steps, from `min` to at most `max`.

    They are those that the decimals in a pipeline file add up to: 0.3, and not
    0.30000000000000004, comes after 0.2 with step 0.1.
    """
    smallest, largest, step = (Decimal(str(number)) for number in (values.min, values.max, values.step))
    if values.sampling == "linear":
        count = math.floor((largest - smallest) / step + _ROUNDING) + 1
        numbers = [smallest + index * step for index in range(count)]
    else:
        count = math.floor(Decimal(math.log(largest / smallest, step)) + _ROUNDING) + 1
        numbers = [smallest * step**index for index in range(count)]
    if values.sampling == "reverse_log":
        numbers = [largest + smallest - number for number in numbers]
    return [float(min(number, largest)) for number in numbers]

"""Describes a search for hyperparameters, as one JSON document.

It is an execution property of the Tuner. Imports neither TFX nor TensorFlow.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Literal

from pydantic import Field

from tfx_distribute.components.spec_model import SpecModel
from tfx_distribute.components.tuner import value_range
from tfx_distribute.components.tuner.value_range import ValueRange
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.parameters import GROUPS
from tfx_distribute.trainer_module.job.training_job import TrainingOptions

Direction = Literal["", "min", "max"]

# Settings that do not affect which trials are made, so that a changed one does not
# discard a search that was interrupted.
RESULT_NEUTRAL = ("max_trials", "num_parallel_trials", "max_consecutive_failed_trials")


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
    hyperband_iterations: int = Field(1, ge=1)
    """How often the whole of `hyperband` runs."""
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

    Raises a ConfigurationError if a trial might end without an evaluation, or if
    `export_best` would keep its worst one.
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
    shortest = 1 if search.oracle == "hyperband" else count_epochs(options)
    if search.objective.startswith("val_") and shortest < options.validation_freq:
        raise ConfigurationError(
            f"tune.objective: {search.objective!r} is a metric of evaluations, and with validation_freq="
            f"{options.validation_freq} a trial with epochs={shortest} may have none; write validation_freq={shortest}"
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
                "tune.max_trials: hyperband decides on the number of trials, by epochs, factor and hyperband_iterations; "
                "leave it out"
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
        problem = value_range.find_problem(values, hparams[name])
        if problem:
            raise ConfigurationError(f"tune.space.{name}: {problem}")

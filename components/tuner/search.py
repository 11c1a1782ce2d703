"""Describes a search for hyperparameters, as one JSON document.

It is an execution property of the Tuner. Imports neither TFX nor TensorFlow.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from tfx_distribute.components.tuner import value_range
from tfx_distribute.components.tuner.value_range import Value, ValueRange
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.parameters import GROUPS
from tfx_distribute.trainer_module.job.training_job import TrainingOptions

Direction = Literal["", "min", "max"]
OracleName = Literal["random", "bayesian", "hyperband"]

# Whole-numbered settings, and the smallest value of each.
_SMALLEST = {
    "max_trials": 0,
    "num_parallel_trials": 1,
    "max_consecutive_failed_trials": 1,
    "epochs": 0,
    "train_steps": 0,
    "factor": 2,
    "hyperband_iterations": 1,
    "seed": 0,
}
# Settings that do not affect which trials are made, so that a changed one does not
# discard a search that was interrupted.
RESULT_NEUTRAL = ("max_trials", "num_parallel_trials", "max_consecutive_failed_trials")


@dataclass(frozen=True)
class Search:
    """A search for hyperparameters.

    ```python
    Search(
        objective="val_accuracy",
        max_trials=8,
        space={"learning_rate": ValueRange(min=1e-4, max=0.1, sampling="log")},
    )
    ```

    Attributes:
      objective: Metric of the training to compare trials by, such as `val_loss`.
      space: Name of a hyperparameter -> its values.
      direction: `min` or `max`; empty for that of the objective's name.
      oracle: KerasTuner's oracle that chooses the values.
      max_trials: Number of trials; 0 with `hyperband`, which decides on it.
      num_parallel_trials: Trials that train at the same time.
      max_consecutive_failed_trials: Trials in a row that may fail before the search
        does.
      epochs: Epochs of a trial, the longest one with `hyperband`; 0 for those of the
        Trainer.
      train_steps: Training steps of a trial; 0 for those of the Trainer.
      factor: Hyperband continues one of so many trials, for so many times the epochs.
      hyperband_iterations: How often the whole of Hyperband runs.
      seed: Seed of the oracle.
    """

    objective: str
    space: Mapping[str, ValueRange]
    direction: Direction = ""
    oracle: OracleName = "random"
    max_trials: int = 0
    num_parallel_trials: int = 1
    max_consecutive_failed_trials: int = 3
    epochs: int = 0
    train_steps: int = 0
    factor: int = 3
    hyperband_iterations: int = 1
    seed: int = 0

    @property
    def goal(self) -> Direction:
        """Returns `min` or `max`; empty if neither is known."""
        return self.direction or find_direction(self.objective)

    def decisive_settings(self) -> dict[str, Any]:
        """Returns what affects which trials are made, for a fingerprint."""
        return {name: value for name, value in asdict(self).items() if name not in RESULT_NEUTRAL}


_SEARCH = TypeAdapter(Search)


def to_json(search: Search) -> str:
    """Writes a search as a JSON document."""
    return _SEARCH.dump_json(search).decode()


def from_json(text: str) -> Search:
    """Reads a search from a JSON document.

    Raises:
      pydantic.ValidationError: The document does not describe a search.
    """
    return _SEARCH.validate_json(text)


def from_mapping(document: Mapping[str, Any]) -> Search:
    """Reads a search from a mapping with the names of its attributes.

    Raises:
      pydantic.ValidationError: The mapping does not describe a search.
    """
    return _SEARCH.validate_python(document)


def find_direction(objective: str) -> Direction:
    """Returns the direction that a metric's name implies; empty if it implies none."""
    name = objective.lower()
    return "min" if name.endswith("loss") else "max" if name.endswith(("accuracy", "auc")) else ""


def trial_options(search: Search, options: TrainingOptions, hparams: Mapping[str, Value]) -> TrainingOptions:
    """Returns the training options of a trial: the Trainer's, and a length of its own.

    The search was checked by `check`. The defaults in `hparams` decide on types.

    Raises:
      ConfigurationError: The oracle needs another kind of length, or the best weights
        of a trial would be those of its worst evaluation.
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
    shortest = epochs = count_epochs(options)
    if search.oracle == "hyperband" and epochs:  # the first round of its largest bracket
        shortest = math.ceil(epochs / search.factor ** (_count_rounds(search, epochs) - 1))
    if search.objective.startswith("val_") and shortest < options.validation_freq:
        raise ConfigurationError(
            f"tune.objective: {search.objective!r} is a metric of evaluations, and with validation_freq="
            f"{options.validation_freq} a trial of {shortest} epochs has none; write validation_freq={shortest}"
        )
    if search.oracle == "hyperband" and not (options.epochs or options.steps_per_epoch):
        raise ConfigurationError(
            "tune.epochs: is missing; hyperband gives poor trials fewer epochs than others; write the epochs of the longest"
        )
    if search.oracle == "hyperband":
        _check_combinations(search, epochs, hparams)
    return options


def with_epochs(options: TrainingOptions, epochs: int) -> TrainingOptions:
    """Returns training options for a number of epochs.

    An epoch is one pass over the examples or, where the options say so, a number of
    training steps.
    """
    if options.steps_per_epoch:
        return replace(options, train_steps=epochs * options.steps_per_epoch)
    return replace(options, epochs=epochs, train_steps=0)


def count_epochs(options: TrainingOptions) -> int:
    """Returns the number of epochs of training options; 0 if they have no length."""
    return options.epochs or math.ceil(options.train_steps / (options.steps_per_epoch or options.train_steps or 1))


def _check_combinations(search: Search, epochs: int, hparams: Mapping[str, Value]) -> None:
    """Checks that there are enough values for the first round of Hyperband."""
    rounds = _count_rounds(search, epochs)
    trials = math.ceil(math.ceil(1 + math.log(epochs, search.factor)) / rounds * search.factor ** (rounds - 1))
    combinations = math.prod(value_range.count(values, type(hparams[name])) for name, values in search.space.items())
    if rounds > 1 and combinations < trials:
        raise ConfigurationError(
            f"tune.space: it has {combinations} combinations, and hyperband begins with {trials} trials, to continue the "
            f"best, with epochs={epochs} and factor={search.factor}; write oracle: random, or fewer epochs"
        )


def _count_rounds(search: Search, epochs: int) -> int:
    """Returns the number of rounds of Hyperband's largest bracket."""
    rounds, length = 0, float(epochs)
    while length >= 1:
        rounds, length = rounds + 1, length / search.factor
    return rounds


def check(search: Search, hparams: Mapping[str, Any]) -> None:
    """Checks a search against the hyperparameters of a pipeline.

    Raises:
      ConfigurationError: They do not go together. The message begins with the setting.
    """
    _check_settings(search)
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
    if not search.space:
        raise ConfigurationError("tune.space: names no hyperparameter; write the values to search among")
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
        if not isinstance(values, ValueRange):
            raise ConfigurationError(f"tune.space.{name}: {values!r} is not a ValueRange; write ValueRange(...)")
        problem = value_range.find_problem(values, hparams[name])
        if problem:
            raise ConfigurationError(f"tune.space.{name}: {problem}")


def _check_settings(search: Search) -> None:
    """Checks each setting by itself, as the pipeline file's schema does."""
    for name, choices in {"direction": get_args(Direction), "oracle": get_args(OracleName)}.items():
        value = getattr(search, name)
        if value not in choices:
            raise ConfigurationError(f"tune.{name}: is {value!r}; write {' or '.join(filter(None, choices))}")
    for name, smallest in _SMALLEST.items():
        value = getattr(search, name)
        if type(value) is not int or value < smallest:
            raise ConfigurationError(f"tune.{name}: is {value!r}; write a whole number from {smallest}")

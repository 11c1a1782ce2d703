"""Asks KerasTuner's oracles which hyperparameters to try.

Importing this module imports KerasTuner, and Keras with it.
"""

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import keras_tuner
from keras_tuner.engine import trial as trial_lib

from tfx_distribute.components.spec_model import Scalar
from tfx_distribute.components.tuner.search import Search, ValueRange, list_steps
from tfx_distribute.components.tuner.trials import COMPLETED, FAILED, Trial

Oracle: TypeAlias = keras_tuner.Oracle
KerasTrial: TypeAlias = trial_lib.Trial
TrialStatus = trial_lib.TrialStatus

SECONDS = "seconds"  # name of a metric, besides the objective: the training's wall time
_RESERVED = "tuner/"  # hyperparameters of Hyperband itself begin with this
# KerasTuner takes a space to have no more values after so many draws of values that it
# has tried: with its own 20, it misses some of 100. All take it a second or two.
_MAX_COLLISIONS = 10_000


class BayesianOracle(keras_tuner.oracles.BayesianOptimizationOracle):
    """KerasTuner's Bayesian optimization, which does not repeat a trial.

    With few values, the Gaussian process suggests the best ones again and again, and
    failed ones too, as it does not learn from them. Here values at random replace them.
    """

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Returns the values of the next trial, as KerasTuner expects them."""
        response: dict[str, Any] = super().populate_space(trial_id)
        if response["status"] != TrialStatus.RUNNING:
            return response
        # Where the process suggests the upper end of whole numbers, KerasTuner adds 1.
        largest = {hp.name: hp.max_value for hp in self.hyperparameters.space if hasattr(hp, "max_value")}
        values = {
            name: min(value, largest[name]) if name in largest else value for name, value in response["values"].items()
        }
        return self._random_populate_space() if self._duplicate(values) else {**response, "values": values}


def _add(space: keras_tuner.HyperParameters, name: str, values: ValueRange, kind: type) -> None:
    if kind is bool and len(values.values) == 2:
        space.Boolean(name)
    elif values.values:
        space.Choice(name, [kind(value) for value in values.values])
    elif kind is int:
        space.Int(name, values.min, values.max, step=values.step, sampling=values.sampling)
    elif values.step is not None:
        # KerasTuner's own steps miss `max` where (max - min) / step is a little less
        # than a whole number. Oracles use the order of a Choice's numbers too.
        space.Choice(name, list_steps(values))
    else:
        space.Float(name, float(values.min or 0.0), float(values.max or 0.0), sampling=values.sampling)


def make_oracle(search: Search, hparams: Mapping[str, Scalar], max_epochs: int, folder: str) -> Oracle:
    """Makes the oracle of a search, which writes to `folder`, a new one.

    `hparams` decides on the types of values. `max_epochs` is for `hyperband`: epochs of
    the longest trial.
    """
    space = keras_tuner.HyperParameters()
    for name, values in search.space.items():
        _add(space, name, values, type(hparams[name]))
    arguments: dict[str, Any] = {
        "objective": keras_tuner.Objective(search.objective, search.goal),
        "hyperparameters": space,
        "allow_new_entries": False,
        "tune_new_entries": False,
        "seed": search.seed + 1,  # KerasTuner takes 0 for no seed
        "max_consecutive_failed_trials": sys.maxsize,  # SearchRun counts them itself
    }
    if search.oracle == "hyperband":
        oracle = keras_tuner.oracles.HyperbandOracle(max_epochs=max_epochs, factor=search.factor, **arguments)
    elif search.oracle == "bayesian":
        oracle = BayesianOracle(max_trials=search.max_trials, **arguments)
    else:
        oracle = keras_tuner.oracles.RandomSearchOracle(max_trials=search.max_trials, **arguments)
    oracle.verbose = 0
    oracle._max_collisions = _MAX_COLLISIONS
    oracle._set_project_dir(folder, "oracle")  # only a Tuner of KerasTuner does it otherwise
    return oracle


def snapshot(folder: str) -> dict[str, str]:
    """Returns all files that an oracle has written, path -> text.

    KerasTuner writes them in place: a process that is killed may leave half a file. As
    one document, they can be replaced at once.
    """
    root = Path(folder)
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*.json"))}


def restore(oracle: Oracle, folder: str, files: Mapping[str, str]) -> None:
    """Continues a snapshot with a new oracle: trials that were running come next."""
    for path, text in files.items():
        file = Path(folder) / path
        os.makedirs(file.parent, exist_ok=True)
        file.write_text(text)
    oracle.reload()


def read_trial(trial: KerasTrial, objective: str, hparams: Mapping[str, Scalar]) -> Trial:
    """Returns a trial that trains or has ended, without Hyperband's own values.

    The defaults in `hparams` decide on the types.
    """
    values, metrics = trial.hyperparameters.values, trial.metrics
    score = metrics.get_last_value(objective) if metrics.exists(objective) else None
    if score is not None and not math.isfinite(score):
        score = None
    return Trial(
        trial=_number(trial.trial_id),
        status=FAILED if score is None else COMPLETED,
        hparams={name: type(hparams[name])(value) for name, value in values.items() if not name.startswith(_RESERVED)},
        score=score,
        step=trial.best_step or 0,
        epochs=values.get(f"{_RESERVED}epochs", 0),
        continues=_number(continued_id(trial)),
        seconds=round(metrics.get_last_value(SECONDS), 3) if metrics.exists(SECONDS) else 0.0,
        message=trial.message or "",
    )


def continued_id(trial: KerasTrial) -> str:
    """Returns the id of the trial that this one continues; empty without Hyperband."""
    return str(trial.hyperparameters.values.get(f"{_RESERVED}trial_id", ""))


def _number(trial_id: str) -> str:
    """Returns a trial's number without the zeros that KerasTuner puts before it."""
    return trial_id.lstrip("0") or trial_id[:1]

"""Keeps the weights of the best evaluation, for the export.

They lie next to the training state, which a retry finds; see `state_folder`. A retry
repeats the evaluations since the last save, and a value that is only equal replaces
nothing: the same one wins as without a restart.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError, first_line
from tfx_distribute.trainer_module.job.step_plan import Plan
from tfx_distribute.trainer_module.job.training_job import BestEvaluation, TrainingJob
from tfx_distribute.trainer_module.keras import keras_models
from tfx_distribute.trainer_module.state.checkpoint import describe_settings, save_and_discard
from tfx_distribute.trainer_module.state.state_folder import StateFolder

_KIND = "best"


class BestModel:
    """Saves and restores the weights of the best evaluation.

    If the processes of a strategy train in step, all of them have to make the same
    calls. Only the chief's files count.
    """

    def __init__(self, job: TrainingJob, plan: Plan, model: tf.keras.Model, is_chief: bool):
        if not job.outputs.checkpoint_dir:
            raise ConfigurationError("export_best: the weights are kept in checkpoint_dir, which is missing; write a folder")
        self._metric, self._mode = job.training_options.export_best, job.training_options.export_mode or "min"
        self._folder = StateFolder(job.outputs.checkpoint_dir, describe_settings(job, plan), job.outputs.result_file)
        self._checkpoint = _checkpoint_without_optimizer(model)
        self._is_chief = is_chief
        document = self._folder.read(_KIND)
        self._best = BestEvaluation(**document["best"]) if document else None

    def offer(self, metrics: Mapping[str, float], epoch: int, step: int, agree: Callable[..., list[float]]) -> None:
        """Saves the weights if they are better than those of all earlier evaluations.

        Values that are not finite are never better. `epoch` is the one that has ended,
        from 0. `agree` returns the means of its arguments over all processes in step.
        """
        if not agree(self._is_better(metrics.get(self._metric, math.nan)))[0] > 0:
            return
        finite = {name: float(each) for name, each in metrics.items() if math.isfinite(each)}
        self._best = BestEvaluation(self._metric, epoch + 1, step, finite)
        if not self._is_chief:
            save_and_discard(lambda folder: self._checkpoint.write(f"{folder}/best"))
            return
        try:
            self._folder.prepare()
            self._folder.commit(_KIND, step, {"best": asdict(self._best)}, self._checkpoint.write)
        except (tf.errors.OpError, OSError) as error:
            raise TrainingError(
                f"export_best: the best weights so far cannot be saved in {self._folder.path}: {first_line(error)}"
            ) from error

    def restore(self) -> BestEvaluation | None:
        """Restores the weights of the best evaluation, and returns it.

        Returns None if no evaluation had a finite value; the weights stay as they are.
        """
        document = self._folder.read(_KIND)
        if document is None:
            return None
        path = f"{self._folder.path}/{document['checkpoint']}"
        try:
            self._checkpoint.read(path).assert_existing_objects_matched()
        except (tf.errors.OpError, ValueError, AssertionError) as error:
            raise TrainingError(f"export_best: the weights {path} cannot be restored: {first_line(error)}") from error
        return BestEvaluation(**document["best"])

    def _is_better(self, value: float) -> bool:
        if not math.isfinite(value) or self._best is None:
            return math.isfinite(value)
        return value < self._best.value if self._mode == "min" else value > self._best.value


def check_metric(
    job: TrainingJob, plan: Plan, names: Collection[str], evaluated_names: Collection[str], has_evaluation: bool
) -> None:
    """Checks that the metric that decides on the best model will have values.

    `evaluated_names` lack the prefix `val_`.
    """
    metric, options = job.training_options.export_best, job.training_options
    if metric.startswith("val_") and not has_evaluation:
        raise ConfigurationError(
            f"export_best: {metric!r} is a metric of evaluations, and there is no split 'eval' to evaluate on; write a "
            "split eval, or a metric of training"
        )
    if metric.startswith("val_") and plan.epochs < options.validation_freq:
        raise ConfigurationError(
            f"export_best: nothing is evaluated in {plan.epochs} epochs with validation_freq={options.validation_freq}; "
            f"write validation_freq={plan.epochs} or less"
        )
    known = [*(f"val_{name}" for name in evaluated_names if has_evaluation), *names]
    several, _, number = metric.rpartition("_")  # a metric with several values has numbered names
    if metric not in known and not (several in known and number.isdigit()):
        raise ConfigurationError(f"export_best: the model has no metric {metric!r}; write one of {', '.join(known)}")


def _checkpoint_without_optimizer(model: tf.keras.Model) -> tf.train.Checkpoint:
    """Returns a checkpoint of a built model without its optimizer.

    The optimizer may be twice as large as the model, and is not exported.
    """
    state = keras_models.state(model)
    optimizer = getattr(model, "optimizer", None)
    children = tf.train.TrackableView(model).children(state.pop("model"))
    state |= {f"model_{name}": child for name, child in children.items() if child is not optimizer}
    return tf.train.Checkpoint(**state)

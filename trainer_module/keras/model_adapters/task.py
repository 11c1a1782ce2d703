"""Adapts a user's task, which defines its own steps."""

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras import (
    attributes,
    autograph,
    keras_metrics,
    keras_models,
    loss_reduction,
    saved_objects,
)
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter, batch_size
from tfx_distribute.trainer_module.user_code.task import Task


class TaskAdapter(ModelAdapter):
    """Adapts a user's task and adds a metric of its loss."""

    def __init__(self, task: Task):
        self._task = task
        self.model = task.model
        self._loss = tf.keras.metrics.Mean("loss")
        loss_reduction.use_replica_means()
        if not getattr(task.model, "optimizer", None):
            # Callbacks expect `model.optimizer`. Keras wraps the optimizer if the
            # precision needs a loss scale.
            task.model.compile(optimizer=task.optimizer, jit_compile=False)
            self.optimizer = task.model.optimizer
        else:
            self.optimizer = task.optimizer

    @override
    def prepare(self, batch: Any) -> None:
        super().prepare(batch)
        if self._own_parts():  # some of which may create variables in the first step
            # The first step would be too late: the saved state is restored before it.
            self._trace_step(self.train_step, batch)
            self._trace_step(self.eval_step, batch)

    @override
    def train_step(self, *batch: Any) -> tf.Tensor:
        loss = autograph.converted(self._task.train_step)(*batch)
        if loss is None:
            raise ConfigurationError(
                f"module: train_step of {type(self._task).__name__} returned nothing; return the mean loss of the batch"
            )
        self._loss.update_state(loss, sample_weight=batch_size(*batch))
        return loss

    @override
    def eval_step(self, *batch: Any) -> None:
        loss = autograph.converted(self._task.eval_step)(*batch)
        if loss is not None:
            self._loss.update_state(loss, sample_weight=batch_size(*batch))

    @override
    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        return keras_metrics.flatten({metric.name: autograph.converted(metric.result)() for metric in self._all_metrics()})

    @override
    def reset_metrics(self) -> None:
        for metric in self._all_metrics():
            metric.reset_state()

    @override
    def state(self) -> dict[str, Any]:
        parts = _state(self._own_parts())
        return {**self._shared_state(), **({"task": parts} if parts else {})}

    def _own_parts(self) -> dict[str, Any]:
        """Returns what the task has besides model, optimizer and metrics.

        Examples are a teacher network that follows the model, a moving average, and a
        generator of random numbers.
        """
        return _find_parts(self._task, saved_objects.find(self._shared_state()))

    def _shared_state(self) -> dict[str, Any]:
        return {**self._model_state(), "metrics": keras_metrics.state(self._all_metrics())}

    def _all_metrics(self) -> list[tf.keras.metrics.Metric]:
        return [self._loss, *getattr(self._task, "metrics", ())]


def _find_parts(task: Any, elsewhere: Collection[Any]) -> dict[str, Any]:
    """Returns the parts of a task that have variables, or may have some, by path.

    Parts are variables, Keras objects, generators and other objects that TensorFlow can
    save, each once and the same in every process. Those in `elsewhere` are left out.
    """
    left_out = {id(part) for part in elsewhere}
    parts: dict[str, Any] = {}
    for path, value in attributes.walk(task):
        # A new process reads from the beginning; TensorFlow cannot save every iterator.
        reads = isinstance(value, tf.data.Dataset | tf.data.Iterator | tf.distribute.DistributedIterator)
        is_saved = isinstance(value, (tf.__internal__.tracking.Trackable, *keras_models.keras_3_kinds()))
        if is_saved and not reads and not _is_among(left_out, value):
            left_out.add(id(value))
            parts[path] = value
    return dict(sorted(parts.items()))


def _state(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parts as `tf.train.Checkpoint` can save them.

    In Keras 3, it does not see all variables of an object, see `keras_models.state`.
    """
    saved: dict[str, Any] = {}
    for path, part in parts.items():
        if isinstance(part, tf.__internal__.tracking.Trackable):
            saved[path] = part
        if isinstance(part, keras_models.keras_3_kinds()):
            saved |= {f"{path}/variables/{index}": each.value for index, each in enumerate(_keras_3_variables(part))}
    return saved


def _is_among(identities: Collection[int], part: Any) -> bool:
    if id(part) in identities:
        return True
    variables = _keras_3_variables(part) if isinstance(part, keras_models.keras_3_kinds()) else ()
    return bool(variables) and all(id(each.value) in identities for each in variables)


def _keras_3_variables(part: Any) -> list[Any]:
    if isinstance(part, tf.keras.random.SeedGenerator):
        return [part.state]
    return [part] if isinstance(part, tf.keras.Variable) else list(part.variables)

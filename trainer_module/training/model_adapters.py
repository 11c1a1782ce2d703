"""What `build_model` returned, in the one shape that the loop knows: a loss of a batch, metrics, an optimizer.

A compiled model of either generation of Keras and a task with steps of its own differ here and nowhere else.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training import normalisation
from tfx_distribute.trainer_module.user_code.task import Task


class ModelAdapter:
    """Something that has losses, metrics and an optimizer.

    Attributes:
      model: The Keras model that is trained and exported.
      optimizer: What applies gradients.
      steps_alone: Whether `train_step` also applies the gradients, since the user's own one does.
    """

    model: tf.keras.Model
    optimizer: Any
    steps_alone = False

    def reads(self, available: set[str]) -> set[str]:
        """Which of the features the steps read; all, where it cannot be told."""
        return available

    def prepare(self, batch: Any) -> None:
        """Creates the variables that Keras would create in the first step. To be called in the strategy's scope.

        Args:
          batch: Features and label of a batch of zeros.
        """
        if not all(layer.built for layer in self.model._flatten_layers()):
            # Traced, and not computed: replicas have nothing to compute yet.
            tf.function(lambda features: self.model(features, training=False)).get_concrete_function(batch[0])

    def train_step(self, *batch: Any) -> tf.Tensor:
        """Updates the metrics from one replica's batch and returns its mean loss, a scalar."""
        raise NotImplementedError

    def eval_step(self, *batch: Any) -> None:
        """Updates the metrics from one replica's batch."""
        raise NotImplementedError

    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        """Returns the values of the metrics, the loss among them: of training steps, or of an evaluation."""
        raise NotImplementedError

    def reset_metrics(self) -> None:
        """Begins to count anew."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """All that training changes, as `tf.train.Checkpoint` takes it; the same in every process."""
        raise NotImplementedError


class CompiledModel(ModelAdapter):
    """A compiled Keras 2 model: its losses, regularisers and metrics, or its own `train_step` and `test_step`."""

    def __init__(self, model: tf.keras.Model):
        self.model = model
        self.optimizer = model.optimizer
        kind, keras_model = type(model), tf.keras.Model
        own_train, own_test = kind.train_step is not keras_model.train_step, kind.test_step is not keras_model.test_step
        own_metrics = kind.compute_metrics is not keras_model.compute_metrics
        self.steps_alone, self._tests_alone = own_train or own_metrics, own_test or own_metrics
        self._reads_all = own_train or own_test  # as far as can be told; Keras's own steps read the model's inputs
        self._own_loss = kind.compute_loss is not keras_model.compute_loss
        # What the module's own steps log, in training and in evaluation; and means of what Keras keeps no metric for.
        self._logged: dict[bool, list[str]] = {False: [], True: []}
        self._means = {"loss": tf.keras.metrics.Mean("loss")}
        if self.steps_alone:
            normalisation.use_keras_means()
        else:
            normalisation.use_replica_means()

    @override
    def prepare(self, batch: Any) -> None:
        # In the first step is too late: what was saved of metrics is restored before it.
        self._build(batch)
        if self.steps_alone:
            self._trace(self.train_step, batch)
        if self._tests_alone:
            self._trace(self.eval_step, batch)
        logged = {*self._logged[False], *self._logged[True]}
        for name in sorted(logged - {metric.name for metric in self.model.metrics} - {"loss"}):  # alike in every process
            self._means[name] = tf.keras.metrics.Mean(name)

    @override
    def reads(self, available: set[str]) -> set[str]:
        return available if self._reads_all else input_names(self.model, available)

    @override
    def train_step(self, *batch: Any) -> tf.Tensor:
        if self.steps_alone:
            return self._keep_logs(self.model.train_step(batch), batch, evaluated=False)
        # What `tf.keras.Model.train_step` does, but for reading the metrics after it.
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        prediction = self.model(x, training=True)
        loss = self._loss(x, y, prediction, sample_weight, training=True)
        if loss is None:
            raise ConfigurationError("module: the model has no loss; write model.compile(loss=...) or use add_loss")
        self._update_metrics(y, prediction, sample_weight)
        return loss

    @override
    def eval_step(self, *batch: Any) -> None:
        if self._tests_alone:
            self._keep_logs(self.model.test_step(batch), batch, evaluated=True)
            return
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        prediction = self.model(x, training=False)
        self._loss(x, y, prediction, sample_weight, training=False)
        self._update_metrics(y, prediction, sample_weight)

    @override
    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        results = dict(self.model.get_metrics_result())
        tracker = self._loss_metric()
        if tracker is None:
            results["loss"] = self._means["loss"].result()
        else:  # which steps of the module's own may not update
            kept = tf.convert_to_tensor(tracker.count) > 0
            results["loss"] = tf.where(kept, results["loss"], self._means["loss"].result())
        if not self._logged[evaluated]:
            return results
        return {name: results[name] if name in results else self._means[name].result() for name in self._logged[evaluated]}

    @override
    def reset_metrics(self) -> None:
        self.model.reset_metrics()
        for mean in self._means.values():
            mean.reset_state()

    @override
    def state(self) -> dict[str, Any]:
        metrics = _metric_state([*self._means.values(), *self.model.metrics])
        return {"model": self.model, "optimizer": self.optimizer, "metrics": metrics}

    def _trace(self, step: Callable[..., Any], batch: Any) -> None:
        """Traces a step of the module's own, to learn what it logs, and to have it make its variables."""
        strategy = tf.distribute.get_strategy()
        if self.model.run_eagerly or isinstance(strategy, tf.distribute.ParameterServerStrategy):
            return  # which cannot be traced here
        tf.function(lambda: strategy.run(step, args=batch)).get_concrete_function()

    def _keep_logs(self, logs: dict[str, Any], batch: Any, evaluated: bool) -> tf.Tensor:
        """Updates the means of what a step of the module's own logs; returns its loss, 0 where it logs none."""
        self._logged[evaluated] = list(logs)
        values = {name: tf.reduce_mean(tf.cast(value, tf.float32)) for name, value in logs.items()}
        for name in values.keys() & self._means.keys():
            self._means[name].update_state(values[name], sample_weight=_size(batch[1]))
        return values.get("loss", tf.constant(0.0))

    def _build(self, batch: Any) -> None:
        """Builds the model, its losses and its metrics."""
        if self.steps_alone:  # which need not use them in Keras's way
            super().prepare(batch)
            return

        def build(features: Any, label: Any) -> None:
            prediction = self.model(features, training=False)
            if self.model.compiled_loss is not None:
                self.model.compiled_loss.build(prediction)
            metrics = self.model.compiled_metrics
            metrics.build(prediction, metrics._conform_to_outputs(prediction, label))  # one label for several outputs

        tf.function(build).get_concrete_function(*batch[:2])
        if self.model.compiled_loss is not None:
            normalisation.use_sums_of_step(self.model.compiled_loss)

    def _loss_metric(self) -> tf.keras.metrics.Metric | None:
        """Keras's own metric of the loss, if it has one."""
        metrics = self.model.compiled_loss.metrics if self.model.compiled_loss is not None else []
        return metrics[0] if metrics else None

    def _loss(self, x: Any, y: Any, prediction: Any, sample_weight: Any, training: bool) -> tf.Tensor | None:
        loss = self.model.compute_loss(x, y, prediction, sample_weight)
        if loss is not None and self._own_loss:
            self._means["loss"].update_state(normalisation.replica_mean(loss), sample_weight=_size(y))
        return loss

    def _update_metrics(self, y: Any, prediction: Any, sample_weight: Any) -> None:
        self.model.compiled_metrics.update_state(y, prediction, sample_weight)


class CompiledKeras3Model(CompiledModel):
    """A compiled Keras 3 model."""

    @override
    def _build(self, batch: Any) -> None:
        # Losses and metrics are built from the first batch, and cannot be inside a loop of a graph.
        if not any(isinstance(value, tf.SparseTensor | tf.RaggedTensor) for value in tf.nest.flatten(batch)):
            self.model._symbolic_build(data_batch=batch)
            return
        # Keras's own way takes dense features only.
        features = {name: batch[0][name] for name in input_names(self.model, set(batch[0]))}
        predict = tf.function(lambda inputs: self.model(inputs, training=False)).get_concrete_function(features)
        size = int(tf.nest.flatten(batch[1])[0].shape[0])
        prediction = tf.nest.map_structure(
            lambda output: tf.zeros([size, *output.shape[1:]], output.dtype), predict.structured_outputs
        )
        for part in (self.model._compile_loss, self.model._compile_metrics):
            if part is not None and not part.built:
                part.build(batch[1], prediction)
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)

    @override
    def _loss_metric(self) -> tf.keras.metrics.Metric | None:
        return self.model._loss_tracker

    @override
    def _loss(self, x: Any, y: Any, prediction: Any, sample_weight: Any, training: bool) -> tf.Tensor:
        loss = self.model._compute_loss(x, y, prediction, sample_weight, training=training)
        # Keras 2 sees to it in compute_loss: the metric called "loss", weighed by the examples.
        self.model._loss_tracker.update_state(normalisation.replica_mean(loss), sample_weight=_size(y))
        return loss

    @override
    def _update_metrics(self, y: Any, prediction: Any, sample_weight: Any) -> None:
        if self.model._compile_metrics is not None:
            self.model._compile_metrics.update_state(y, prediction, sample_weight)


class TaskAdapter(ModelAdapter):
    """A task of the user's, with a metric for its loss."""

    def __init__(self, task: Task):
        self._task = task
        self.model = task.model
        self._loss = tf.keras.metrics.Mean("loss")
        normalisation.use_replica_means()
        if not getattr(task.model, "optimizer", None):
            # Callbacks look for the optimizer at the model; Keras wraps it where the precision needs a loss scale.
            task.model.compile(optimizer=task.optimizer, jit_compile=False)
            self.optimizer = task.model.optimizer
        else:
            self.optimizer = task.optimizer

    @override
    def train_step(self, *batch: Any) -> tf.Tensor:
        loss = self._task.train_step(*batch)
        if loss is None:
            raise ConfigurationError(
                f"module: train_step of {type(self._task).__name__} returned nothing; return the mean loss of the batch"
            )
        self._loss.update_state(loss, sample_weight=_size(batch[1]))
        return loss

    @override
    def eval_step(self, *batch: Any) -> None:
        loss = self._task.eval_step(*batch)
        if loss is not None:
            self._loss.update_state(loss, sample_weight=_size(batch[1]))

    @override
    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        return {metric.name: metric.result() for metric in self._all_metrics()}

    @override
    def reset_metrics(self) -> None:
        for metric in self._all_metrics():
            metric.reset_state()

    @override
    def state(self) -> dict[str, Any]:
        own = {"task": self._task} if isinstance(self._task, tf.Module) else {}
        metrics = _metric_state(self._all_metrics())
        return {"model": self.model, "optimizer": self.optimizer, "metrics": metrics, **own}

    def _all_metrics(self) -> list[tf.keras.metrics.Metric]:
        return [self._loss, *getattr(self._task, "metrics", ())]


def make(returned: Any, function: str) -> ModelAdapter:
    """Takes what `build_model` returned. To be called in the strategy's scope.

    Args:
      returned: What it returned.
      function: Its name, for messages.

    Raises:
      ConfigurationError: It is neither a compiled Keras model nor a task.
    """
    if isinstance(returned, tf.keras.Model):
        if not returned.optimizer:
            raise ConfigurationError(
                f"module: {function} returned a model that is not compiled; call model.compile(...) in it"
            )
        return CompiledKeras3Model(returned) if is_keras_3() else CompiledModel(returned)
    lacking = [name for name in ("train_step", "eval_step") if not _has_own(returned, name)]
    if len(lacking) == 2:
        kind = f"{type(returned).__module__}.{type(returned).__name__}"
        raise ConfigurationError(
            f"module: {function} returned {kind}; return a compiled {_keras()} model, or a task with "
            "train_step and eval_step"
        )
    if lacking:
        raise ConfigurationError(
            f"module: the task that {function} returned has no {lacking[0]}; write "
            f"def {lacking[0]}(self, features, label) in {type(returned).__name__}"
        )
    if not isinstance(getattr(returned, "model", None), tf.keras.Model) or not getattr(returned, "optimizer", None):
        raise ConfigurationError(
            f"module: the task that {function} returned lacks model, a {_keras()} model, or optimizer; set both in "
            f"{type(returned).__name__}.__init__"
        )
    return TaskAdapter(returned)


def input_names(model: tf.keras.Model, available: set[str]) -> set[str]:
    """The features that a model reads: those that its inputs are called after, or all where it does not say."""
    if is_keras_3():
        named = {tensor.name for tensor in getattr(model, "inputs", None) or ()}
    else:
        named = set(getattr(model, "input_names", None) or ())
    return named if named and named <= available else available


def as_floats(metrics: dict[str, Any]) -> dict[str, float]:
    """Metrics as numbers; one that has several values, such as one for each class, as so many metrics."""
    floats: dict[str, float] = {}
    for name, value in metrics.items():
        values = tf.reshape(tf.cast(value, tf.float64), [-1]).numpy()
        names = [name] if len(values) == 1 else [f"{name}_{index}" for index in range(len(values))]
        floats.update(zip(names, map(float, values), strict=True))
    return floats


def is_keras_3() -> bool:
    """Whether `tf.keras` is Keras 3 in this process."""
    return tf.keras.Model.__module__.startswith("keras.")  # Keras 2 is tf_keras


def _keras() -> str:
    return f"Keras {3 if is_keras_3() else 2}"


def _has_own(returned: Any, name: str) -> bool:
    return callable(getattr(returned, name, None)) and getattr(type(returned), name, None) is not getattr(Task, name)


def _metric_state(metrics: Sequence[tf.keras.metrics.Metric]) -> list[Any]:
    """Returns what a checkpoint saves of metrics; it does not look into those of Keras 3."""
    return [variable.value for metric in metrics for variable in metric.variables] if is_keras_3() else list(metrics)


def _size(label: Any) -> tf.Tensor:
    return tf.shape(tf.nest.flatten(label)[0])[0]

"""Adapts what `build_model` returned to the one interface that the loop uses.

Only this module distinguishes a compiled Keras 2 model, a compiled Keras 3 model and a
task that defines its own steps.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training import metric_results, normalisation
from tfx_distribute.trainer_module.user_code.task import Task


class ModelAdapter:
    """The common interface of everything that can be trained.

    Attributes:
      model: The Keras model that is trained and exported.
      optimizer: The optimizer that applies gradients.
      applies_gradients: True if `train_step` also applies the gradients, because it
        calls the model's own `train_step`.
    """

    model: tf.keras.Model
    optimizer: Any
    applies_gradients = False

    @tf.autograph.experimental.do_not_convert  # contains no user code
    def updates(self) -> tf.Tensor:
        """Returns how often optimizers have updated weights, an int64 scalar.

        Each training step adds at least one.
        """
        optimizers = [each for each in self.optimizers() if hasattr(each, "iterations")]
        counts = [tf.cast(optimizer.iterations, tf.int64) for optimizer in optimizers]
        return tf.add_n(counts) if counts else tf.constant(0, tf.int64)

    @tf.autograph.experimental.do_not_convert  # contains no user code
    def optimizers(self) -> list[Any]:
        """Returns `optimizer` and those in attributes of the model.

        A model may have optimizers of its own, such as a GAN's, and use only those.
        """
        values = [value for owner in self._owners() for value in getattr(owner, "__dict__", {}).values()]
        parts = [self.optimizer, *(part for value in values for part in list_parts(value))]
        optimizers: dict[int, Any] = {}
        for part in parts:
            if hasattr(part, "apply_gradients"):
                optimizers.setdefault(id(getattr(part, "inner_optimizer", part)), part)  # a loss scale may wrap it
        return list(optimizers.values())

    def _owners(self) -> list[Any]:
        """Returns the objects of the user's that may have optimizers."""
        return [self.model]

    def required_features(self, features: Features) -> set[str]:
        """Returns the names of the features that the steps read.

        Args:
          features: All features. All but labels and weights are returned if the model
            does not say which ones its steps read.
        """
        return set(features.inputs())

    def prepare(self, batch: Any) -> None:
        """Creates the variables that Keras would create in the first step.

        Call this in the strategy's scope.

        Args:
          batch: A batch of zeros: features, and label and weights if there are any.
        """
        if not all(layer.built for layer in self.model._flatten_layers()):
            # Only traces the model: replicas have nothing to compute yet.
            self._trace_prediction(batch[0])

    def _trace_prediction(self, features: Any) -> Any:
        """Traces the model; returns its predictions without values."""
        return tf.function(self._predict).get_concrete_function(features).structured_outputs

    def _predict(self, features: Any) -> Any:
        return self.model(features, training=False)

    def train_step(self, *batch: Any) -> tf.Tensor:
        """Updates the metrics from one replica's batch; returns the mean loss."""
        raise NotImplementedError

    def eval_step(self, *batch: Any) -> None:
        """Updates the metrics from one replica's batch."""
        raise NotImplementedError

    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        """Returns the values of the metrics by name, including `loss`.

        Args:
          evaluated: True for the metrics of an evaluation, False for those of training
            steps.
        """
        raise NotImplementedError

    def reset_metrics(self) -> None:
        """Resets all metrics."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Returns everything that training changes, for `tf.train.Checkpoint(**state)`.

        The keys are the same in every process.
        """
        raise NotImplementedError


class CompiledModel(ModelAdapter):
    """Adapts a compiled Keras 2 model.

    Uses the model's losses, regularisers and metrics, or its own `train_step` and
    `test_step` if its class overrides them.
    """

    def __init__(self, model: tf.keras.Model):
        self.model = model
        self.optimizer = model.optimizer
        model_class, keras_model = type(model), tf.keras.Model
        overrides_train = model_class.train_step is not keras_model.train_step
        overrides_test = model_class.test_step is not keras_model.test_step
        overrides_metrics = model_class.compute_metrics is not keras_model.compute_metrics
        self.applies_gradients = overrides_train or overrides_metrics
        self._uses_test_step = overrides_test or overrides_metrics
        # Keras's own steps read the model's inputs; the user's may read any feature.
        self._reads_all = overrides_train or overrides_test
        self._overrides_loss = model_class.compute_loss is not keras_model.compute_loss
        self._has_label = True
        # Names of the values that the user's steps log, by whether it is an evaluation.
        self._logged: dict[bool, list[str]] = {False: [], True: []}
        # Those that are the result of a metric: name -> metric.
        self._logged_results: dict[bool, dict[str, Any]] = {False: {}, True: {}}
        self._metric_results: metric_results.Results = []  # while a step is traced
        # Means of the logged values that Keras has no metric for.
        self._means = {"loss": tf.keras.metrics.Mean("loss")}
        if self.applies_gradients:
            normalisation.use_keras_means()
        else:
            normalisation.use_replica_means()

    @override
    def prepare(self, batch: Any) -> None:
        self._has_label = len(batch) > 1
        if not self._reads_all:
            self._check_labels(*batch[:2])
        # The first step would be too late: saved metrics are restored before it.
        self._build(batch)
        if self.applies_gradients:
            self._trace(self.train_step, batch)
        if self._uses_test_step:
            self._trace(self.eval_step, batch)
        logged = {*self._logged[False], *self._logged[True]}
        # Sorted, so that every process creates the variables in the same order.
        known = {metric.name for metric in self.model.metrics} | {"loss"}
        for name in sorted(logged - known):
            self._means[name] = tf.keras.metrics.Mean(name)

    @override
    def required_features(self, features: Features) -> set[str]:
        return set(features.inputs()) if self._reads_all else input_names(self.model, features)

    @override
    def train_step(self, *batch: Any) -> tf.Tensor:
        if self.applies_gradients:
            return self._record_logs(self.model.train_step(_as_fit_passes(batch)), batch, evaluated=False)
        # The same as `tf.keras.Model.train_step`, which also reads the metrics at the
        # end.
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        prediction = self.model(x, training=True)
        loss = self._loss(x, y, prediction, sample_weight, training=True)
        if loss is None:
            raise ConfigurationError("module: the model has no loss; write model.compile(loss=...) or use add_loss")
        self._update_metrics(y, prediction, sample_weight)
        return loss

    @override
    def eval_step(self, *batch: Any) -> None:
        if self._uses_test_step:
            self._record_logs(self.model.test_step(_as_fit_passes(batch)), batch, evaluated=True)
            return
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        prediction = self.model(x, training=False)
        self._loss(x, y, prediction, sample_weight, training=False)
        self._update_metrics(y, prediction, sample_weight)

    @override
    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        results = dict(self.model.get_metrics_result())
        loss_metric = self._loss_metric() or self._own_loss_metric()
        if loss_metric is None:
            results["loss"] = self._means["loss"].result()
        else:  # the user's own steps may not update it
            is_updated = tf.convert_to_tensor(loss_metric.count) > 0
            results["loss"] = tf.where(is_updated, results["loss"], self._means["loss"].result())
        if not self._logged[evaluated]:
            return results
        results |= {name: mean.result() for name, mean in self._means.items() if name not in results}
        results |= {name: metric.result() for name, metric in self._logged_results[evaluated].items()}
        return {name: results[name] for name in self._logged[evaluated] if name in results}

    @override
    def reset_metrics(self) -> None:
        if type(self.model).reset_metrics is tf.keras.Model.reset_metrics:
            reset(self.model.metrics)
        else:
            self.model.reset_metrics()
        reset(self._means.values())

    @override
    def state(self) -> dict[str, Any]:
        metrics = _metric_state([*self._means.values(), *self.model.metrics])
        return {**model_state(self.model), "optimizer": self.optimizer, "metrics": metrics}

    def _trace(self, step: Callable[..., Any], batch: Any) -> None:
        """Traces the user's own step, to record its logs and create its variables."""
        with metric_results.recording(self.model.metrics, self._metric_results):
            self._trace_step(step, batch)

    def _trace_step(self, step: Callable[..., Any], batch: Any) -> None:
        strategy = tf.distribute.get_strategy()
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            # Only a function that a worker runs can be traced. It runs no step.
            coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
            coordinator.schedule(tf.function(lambda: self._run_none(step, batch)))
            coordinator.join()
            return
        # A step that can only run eagerly logs nothing but Keras's metrics.
        with contextlib.suppress(Exception) if self.model.run_eagerly else contextlib.nullcontext():
            tf.function(lambda: strategy.run(step, args=batch)).get_concrete_function()

    def _run_none(self, step: Callable[..., Any], batch: Any) -> None:
        for _ in tf.range(0):
            tf.distribute.get_strategy().run(step, args=batch)

    @tf.autograph.experimental.do_not_convert  # contains no user code
    def _find_results(self, logs: dict[str, Any], evaluated: bool) -> None:
        """Finds the logged values that are the result of a metric."""
        for name, value in logs.items():
            for result, metric in self._metric_results:
                if value is result:
                    self._logged_results[evaluated][name] = metric

    def _record_logs(self, logs: dict[str, Any], batch: Any, evaluated: bool) -> tf.Tensor:
        """Updates the means of the values that the user's own step logs.

        Returns:
          The loss that the step logs, or 0 if it logs none.
        """
        self._logged[evaluated] = list(logs)
        self._find_results(logs, evaluated)
        values = {name: tf.reduce_mean(tf.cast(value, tf.float32)) for name, value in logs.items()}
        for name in values.keys() & self._means.keys():
            self._means[name].update_state(values[name], sample_weight=_batch_size(*batch))
        return values.get("loss", tf.constant(0.0))

    @tf.autograph.experimental.do_not_convert  # contains no user code
    def _own_loss_metric(self) -> tf.keras.metrics.Metric | None:
        """Returns the mean called "loss" of a model with steps of its own, if any."""
        if not (self.applies_gradients or self._uses_test_step):
            return None
        return next((each for each in self.model.metrics if each.name == "loss" and hasattr(each, "count")), None)

    def _build(self, batch: Any) -> None:
        """Builds the model, its losses and its metrics."""
        if self.applies_gradients:  # the user's step may not use them as Keras does
            super().prepare(batch)
            return

        prediction, label = self._trace_prediction(batch[0]), batch[1] if len(batch) > 1 else None
        if self.model.compiled_loss is not None:
            self.model.compiled_loss.build(prediction)
        metrics = self.model.compiled_metrics
        metrics.build(prediction, metrics._conform_to_outputs(prediction, label))  # one label may serve several outputs
        if self.model.compiled_loss is not None:
            normalisation.use_sums_of_step(self.model.compiled_loss)

    def _check_labels(self, features: Any, label: Any = None) -> None:
        """Checks that there is a label for each output that the model has a loss for.

        Keras 2 leaves out a loss without a label, and Keras 3 may take another's.
        """
        loss = self.model.loss if not self._overrides_loss else None
        if label is None and loss:
            raise ConfigurationError(
                "label: is missing, and the model is compiled with a loss of it; name the feature that the model predicts, "
                "or compile the model without a loss and use add_loss, a compute_loss of its own or a task"
            )
        if label is None and self._has_compiled_metrics():
            raise ConfigurationError(
                "label: is missing, and the model is compiled with metrics of it; name the feature that the model predicts, "
                "or use add_metric, metrics of a task or of its own steps"
            )
        if not isinstance(label, dict):
            return
        prediction = self._trace_prediction(features)
        outputs = list(prediction) if isinstance(prediction, dict) else list(getattr(self.model, "output_names", None) or ())
        if not outputs:
            raise ConfigurationError(
                "label: the outputs of the model have no names that labels could be given to; return a dictionary from its "
                "call"
            )
        unknown = [name for name in label if name not in outputs]
        if unknown:
            raise ConfigurationError(
                f"label: the model has no output {unknown[0]!r}; it has {', '.join(outputs)}; write one of them before the "
                "name of the label"
            )
        if is_keras_3() and len(outputs) == 1 and not isinstance(prediction, dict):
            raise ConfigurationError(
                f"label: the model has one output, for which Keras 3 takes no dictionary; write label: {label[outputs[0]]}"
            )
        losses = loss if isinstance(loss, dict) else dict(zip(outputs, loss, strict=False)) if isinstance(loss, list) else {}
        with_loss = [name for name in losses if losses[name] is not None] if losses else outputs if loss else ()
        missing = [name for name in with_loss if name not in label]
        if missing:
            raise ConfigurationError(
                f"label: there is none for the output {missing[0]!r}, which the model is compiled with a loss for; write "
                f"{missing[0]}: and the name of its label"
            )

    def _has_compiled_metrics(self) -> bool:
        return bool(self.model.compiled_metrics._user_metrics or self.model.compiled_metrics._user_weighted_metrics)

    def _loss_metric(self) -> tf.keras.metrics.Metric | None:
        """Returns Keras's own metric of the loss, if it has one.

        Without a label, it would be a mean over batches, not over examples.
        """
        has_metrics = self.model.compiled_loss is not None and self._has_label
        metrics = self.model.compiled_loss.metrics if has_metrics else []
        return metrics[0] if metrics else None

    def _loss(self, x: Any, y: Any, prediction: Any, sample_weight: Any, training: bool) -> tf.Tensor | None:
        loss = self.model.compute_loss(x, y, prediction, sample_weight)
        if loss is not None and (self._overrides_loss or y is None):
            self._means["loss"].update_state(normalisation.replica_mean(loss), sample_weight=_batch_size(x, y))
        return loss

    def _update_metrics(self, y: Any, prediction: Any, sample_weight: Any) -> None:
        self.model.compiled_metrics.update_state(y, prediction, sample_weight)


class CompiledKeras3Model(CompiledModel):
    """Adapts a compiled Keras 3 model."""

    def __init__(self, model: tf.keras.Model):
        super().__init__(model)
        if not self.applies_gradients:
            normalisation.use_sums_of_added_losses(model)

    @override
    def _build(self, batch: Any) -> None:
        # Keras builds losses and metrics from the first batch, which fails inside a
        # loop of a graph.
        if not any(isinstance(value, tf.SparseTensor | tf.RaggedTensor) for value in tf.nest.flatten(batch)):
            self.model._symbolic_build(data_batch=batch)
            return
        # `_symbolic_build` supports dense features only.
        named = _named_inputs(self.model)
        features = {name: batch[0][name] for name in (named if named and named <= set(batch[0]) else batch[0])}
        outputs = self._trace_prediction(features)
        if len(batch) > 1:
            size = int(tf.nest.flatten(batch[1])[0].shape[0])
            prediction = tf.nest.map_structure(lambda output: tf.zeros([size, *output.shape[1:]], output.dtype), outputs)
            for part in (self.model._compile_loss, self.model._compile_metrics):
                if part is not None and not part.built:
                    part.build(batch[1], prediction)
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)

    @override
    def _has_compiled_metrics(self) -> bool:
        metrics = self.model._compile_metrics
        return metrics is not None and bool(metrics._user_metrics or metrics._user_weighted_metrics)

    @override
    def _loss_metric(self) -> tf.keras.metrics.Metric | None:
        tracker = self.model._loss_tracker
        # A model with `metrics` of its own may leave it out.
        return tracker if any(metric is tracker for metric in self.model.metrics) else None

    @override
    def _loss(self, x: Any, y: Any, prediction: Any, sample_weight: Any, training: bool) -> tf.Tensor:
        loss = self.model._compute_loss(x, y, prediction, sample_weight, training=training)
        # Keras 2 updates the metric called "loss", weighted by the number of examples,
        # in `compute_loss`.
        mean, size = normalisation.replica_mean(loss), _batch_size(x, y)
        self.model._loss_tracker.update_state(mean, sample_weight=size)
        if self._loss_metric() is None:
            self._means["loss"].update_state(mean, sample_weight=size)
        return loss

    @override
    def _update_metrics(self, y: Any, prediction: Any, sample_weight: Any) -> None:
        if self.model._compile_metrics is not None:
            self.model._compile_metrics.update_state(y, prediction, sample_weight)


class TaskAdapter(ModelAdapter):
    """Adapts a user's task and adds a metric of its loss."""

    def __init__(self, task: Task):
        self._task = task
        self.model = task.model
        self._loss = tf.keras.metrics.Mean("loss")
        normalisation.use_replica_means()
        if not getattr(task.model, "optimizer", None):
            # Callbacks expect `model.optimizer`. Keras wraps the optimizer if the
            # precision needs a loss scale.
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
        self._loss.update_state(loss, sample_weight=_batch_size(*batch))
        return loss

    @override
    def eval_step(self, *batch: Any) -> None:
        loss = self._task.eval_step(*batch)
        if loss is not None:
            self._loss.update_state(loss, sample_weight=_batch_size(*batch))

    @override
    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        return {metric.name: metric.result() for metric in self._all_metrics()}

    @override
    def reset_metrics(self) -> None:
        reset(self._all_metrics())

    @override
    def state(self) -> dict[str, Any]:
        task_state = {"task": self._task} if isinstance(self._task, tf.Module) else {}
        metrics = _metric_state(self._all_metrics())
        return {**model_state(self.model), "optimizer": self.optimizer, "metrics": metrics, **task_state}

    @override
    def _owners(self) -> list[Any]:
        return [self._task, self.model]

    def _all_metrics(self) -> list[tf.keras.metrics.Metric]:
        return [self._loss, *getattr(self._task, "metrics", ())]


def list_parts(value: Any) -> Iterable[Any]:
    """Returns the values in a list, tuple or dictionary, or else the value itself."""
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else [value]


def reset(metrics: Iterable[tf.keras.metrics.Metric]) -> None:
    """Calls `reset_state` of metrics, or does the same in less time.

    With a strategy, Keras 2's own `reset_state` also reads each variable after setting
    it to zero: the replicas, on all workers, sum it up for nothing.

    Args:
      metrics: The metrics.
    """
    keras_metric = tf.keras.metrics.Metric
    for metric in metrics:
        is_keras_own = all(
            getattr(type(metric), name, None) is getattr(keras_metric, name, None)
            for name in ("reset_state", "reset_states")  # a metric may override either
        )
        if is_keras_own and all(isinstance(variable, tf.distribute.DistributedValues) for variable in metric.variables):
            for variable in metric.variables:
                variable.assign(tf.constant(0, variable.dtype), read_value=False)
        else:
            metric.reset_state()


def make(returned: Any, function: str) -> ModelAdapter:
    """Makes the adapter for what `build_model` returned.

    Call this in the strategy's scope.

    Args:
      returned: The return value of `build_model`, a compiled Keras model or a task.
      function: The name of that function, for messages.

    Raises:
      ConfigurationError: The value is neither a compiled Keras model nor a task.
    """
    if isinstance(returned, tf.keras.Model):
        if not returned.optimizer:
            raise ConfigurationError(
                f"module: {function} returned a model that is not compiled; call model.compile(...) in it"
            )
        _check_has_call(returned)
        return CompiledKeras3Model(returned) if is_keras_3() else CompiledModel(returned)
    missing = [name for name in ("train_step", "eval_step") if not _defines_step(returned, name)]
    if len(missing) == 2:
        kind = f"{type(returned).__module__}.{type(returned).__name__}"
        raise ConfigurationError(
            f"module: {function} returned {kind}; return a compiled {_keras_name()} model, or a task with "
            "train_step and eval_step"
        )
    if missing:
        raise ConfigurationError(
            f"module: the task that {function} returned has no {missing[0]}; write "
            f"def {missing[0]}(self, features, label) in {type(returned).__name__}"
        )
    if not isinstance(getattr(returned, "model", None), tf.keras.Model) or not getattr(returned, "optimizer", None):
        raise ConfigurationError(
            f"module: the task that {function} returned lacks model, a {_keras_name()} model, or optimizer; set both in "
            f"{type(returned).__name__}.__init__"
        )
    _check_has_call(returned.model)
    return TaskAdapter(returned)


def _check_has_call(model: tf.keras.Model) -> None:
    if type(model).call is tf.keras.Model.call:
        name = type(model).__name__
        raise ConfigurationError(
            f"module: the model {name} has no call, so it cannot be served; write "
            f"def call(self, features) in {name}, which returns what a request to the model gets"
        )


def input_names(model: tf.keras.Model, features: Features) -> set[str]:
    """Returns the names of the features that a model reads.

    These are the names of its inputs. One of them may be the label, as for an
    autoencoder.

    Args:
      model: A Keras model.
      features: All features. All but labels and weights are returned if the model's
        inputs have no names, or names of other things.
    """
    names = _named_inputs(model)
    return names if names and names <= set(features.decoded) else set(features.inputs())


def _named_inputs(model: tf.keras.Model) -> set[str]:
    if is_keras_3():
        return {tensor.name for tensor in getattr(model, "inputs", None) or ()}
    return set(getattr(model, "input_names", None) or ())


def model_state(model: tf.keras.Model) -> dict[str, Any]:
    """Returns a built model for `tf.train.Checkpoint(**state)`.

    TensorFlow does not see layers in lists and dictionaries of a Keras 3 model, so the
    state of one has its weights as well.
    """
    return {"model": model, **({"weights": [weight.value for weight in model.weights]} if is_keras_3() else {})}


def as_floats(metrics: dict[str, Any]) -> dict[str, float]:
    """Converts the values of metrics to numbers.

    A metric with several values, such as one for each class, becomes several metrics:
    `{"recall": [0.5, 1.0]}` becomes `{"recall_0": 0.5, "recall_1": 1.0}`.

    Args:
      metrics: Name -> tensor or number.
    """
    floats: dict[str, float] = {}
    for name, value in metrics.items():
        values = tf.reshape(tf.cast(value, tf.float64), [-1]).numpy()
        names = [name] if len(values) == 1 else [f"{name}_{index}" for index in range(len(values))]
        floats.update(zip(names, map(float, values), strict=True))
    return floats


def is_keras_3() -> bool:
    """Returns True if `tf.keras` is Keras 3 in this process."""
    return tf.keras.Model.__module__.startswith("keras.")  # Keras 2 is tf_keras


def _keras_name() -> str:
    return f"Keras {3 if is_keras_3() else 2}"


def _defines_step(returned: Any, name: str) -> bool:
    return callable(getattr(returned, name, None)) and getattr(type(returned), name, None) is not getattr(Task, name)


def _metric_state(metrics: Sequence[tf.keras.metrics.Metric]) -> list[Any]:
    """Returns the state of metrics as a checkpoint can save it.

    `tf.train.Checkpoint` does not save the variables of a Keras 3 metric object.
    """
    return [variable.value for metric in metrics for variable in metric.variables] if is_keras_3() else list(metrics)


def _as_fit_passes(batch: Any) -> Any:
    """Returns a batch as `fit` passes it to a model's own steps."""
    return batch if len(batch) > 1 else batch[0]


def _batch_size(features: Any, label: Any = None, *weights: Any) -> tf.Tensor:
    first = tf.nest.flatten(features if label is None else label)[0]
    return first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]

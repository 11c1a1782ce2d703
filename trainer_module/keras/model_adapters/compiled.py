"""Adapts a compiled Keras model, with its losses and metrics or steps of its own."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import LabelRanges
from tfx_distribute.trainer_module.keras import autograph, keras_metrics, keras_models, label_checks, loss_reduction
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter, batch_size


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
        self._divides_loss = False
        self._has_label = True
        # Names of the values that the user's steps log, by whether it is an evaluation.
        self._logged: dict[bool, list[str]] = {False: [], True: []}
        # Those that are the result of a metric: name -> what reads it.
        self._logged_results: dict[bool, dict[str, Callable[[], Any]]] = {False: {}, True: {}}
        self._metric_results: keras_metrics.Results = []  # while a step is traced
        # Means of the logged values that Keras has no metric for.
        self._means = {"loss": tf.keras.metrics.Mean("loss")}
        if self.applies_gradients:
            loss_reduction.use_keras_means()
        else:
            loss_reduction.use_replica_means()

    @override
    def check_labels(self, features: Features, ranges: LabelRanges) -> None:
        if self._reads_all or self._overrides_loss:
            return
        label_checks.check_types(self.model, features)
        if not features.functions:  # which may change the label
            label_checks.check_ranges(self.model, features, ranges)

    @override
    def prepare(self, batch: Any) -> None:
        self._has_label = len(batch) > 1
        if not self._reads_all:
            self._check_labels(*batch[:2])
        # The first step would be too late: saved metrics are restored before it.
        self._build(batch)
        if self.applies_gradients:
            self._trace(self.train_step, batch)
        elif self._overrides_loss and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            with loss_reduction.noticing_division() as askers:
                self._trace_step(self.train_step, batch)
            self._divides_loss = bool(askers)
        if self._uses_test_step:
            self._trace(self.eval_step, batch)
        logged = {*self._logged[False], *self._logged[True]}
        # Sorted, so that every process creates the variables in the same order.
        known = {metric.name for metric in self.model.metrics} | {"loss"}
        for name in sorted(logged - known):
            self._means[name] = tf.keras.metrics.Mean(name)

    @override
    def required_features(self, features: Features) -> set[str]:
        return set(features.inputs()) if self._reads_all else keras_models.input_names(self.model, features)

    @override
    def train_step(self, *batch: Any) -> tf.Tensor:
        if self.applies_gradients:
            return self._record_logs(
                autograph.converted(self.model.train_step)(_as_fit_passes(batch)), batch, evaluated=False
            )
        # The same as `tf.keras.Model.train_step`, which also reads the metrics at the
        # end.
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        prediction = autograph.converted(self.model)(x, training=True)
        loss = self._loss(x, y, prediction, sample_weight, training=True)
        if loss is None:
            raise ConfigurationError("module: the model has no loss; write model.compile(loss=...) or use add_loss")
        self._update_metrics(y, prediction, sample_weight)
        return loss

    @override
    def eval_step(self, *batch: Any) -> None:
        if self._uses_test_step:
            self._record_logs(autograph.converted(self.model.test_step)(_as_fit_passes(batch)), batch, evaluated=True)
            return
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        prediction = autograph.converted(self.model)(x, training=False)
        self._loss(x, y, prediction, sample_weight, training=False)
        self._update_metrics(y, prediction, sample_weight)

    @override
    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        results = dict(autograph.converted(self.model.get_metrics_result)())
        loss_metric = self._loss_metric() or self._own_loss_metric()
        if loss_metric is None:
            results["loss"] = self._means["loss"].result()
        else:  # the user's own steps may not update it
            is_updated = tf.convert_to_tensor(loss_metric.count) > 0
            results["loss"] = tf.where(is_updated, results["loss"], self._means["loss"].result())
        if not self._logged[evaluated]:
            return results
        results |= {name: mean.result() for name, mean in self._means.items() if name not in results}
        results |= {name: read() for name, read in self._logged_results[evaluated].items()}
        return {name: results[name] for name in self._logged[evaluated] if name in results}

    @override
    def reset_metrics(self) -> None:
        self.model.reset_metrics()
        for mean in self._means.values():
            mean.reset_state()

    @override
    def state(self) -> dict[str, Any]:
        metrics = keras_metrics.state([*self._means.values(), *self.model.metrics])
        return {**self._model_state(), "metrics": metrics}

    def _trace(self, step: Callable[..., Any], batch: Any) -> None:
        """Traces the user's own step, to record its logs and create its variables."""
        with keras_metrics.recording_results(self.model.metrics, self._metric_results):
            self._trace_step(step, batch)

    def _find_results(self, logs: dict[str, Any], evaluated: bool) -> None:
        for name, value in logs.items():
            for result, read in self._metric_results:
                if value is result:
                    self._logged_results[evaluated][name] = read

    def _record_logs(self, logs: dict[str, Any], batch: Any, evaluated: bool) -> tf.Tensor:
        """Updates the means of the values that the user's own step logs.

        Returns the loss that the step logs, or 0 if it logs none.
        """
        logs = keras_metrics.flatten(logs)
        self._logged[evaluated] = list(logs)
        self._find_results(logs, evaluated)
        values = {name: tf.reduce_mean(tf.cast(value, tf.float32)) for name, value in logs.items()}
        if not keras_models.is_keras_3() and self.model.distribute_reduction_method == "sum":
            # Sums the replicas' values. Keras 3 ignores this attribute.
            replicas = float(tf.distribute.get_strategy().num_replicas_in_sync)
            values = {name: value * replicas for name, value in values.items()}
        for name in values.keys() & self._means.keys():
            self._means[name].update_state(values[name], sample_weight=batch_size(*batch))
        return values.get("loss", tf.constant(0.0))

    def _own_loss_metric(self) -> tf.keras.metrics.Metric | None:
        """Returns the mean called "loss" of a model with steps of its own, if any."""
        if not (self.applies_gradients or self._uses_test_step):
            return None
        return next((each for each in self.model.metrics if each.name == "loss" and hasattr(each, "count")), None)

    def _build(self, batch: Any) -> None:
        if self.applies_gradients:  # the user's step may not use them as Keras does
            super().prepare(batch)
            return

        prediction, label = self.trace_prediction(batch[0]), batch[1] if len(batch) > 1 else None
        if self.model.compiled_loss is not None:
            self.model.compiled_loss.build(prediction)
        metrics = self.model.compiled_metrics
        metrics.build(prediction, metrics._conform_to_outputs(prediction, label))  # one label may serve several outputs
        if self.model.compiled_loss is not None:
            loss_reduction.use_sums_of_step(self.model.compiled_loss)

    def _check_labels(self, features: Any, label: Any = None) -> None:
        """Checks that there is a label for each output that the model has a loss for.

        Keras 2 leaves out a loss without a label, and Keras 3 may take another's.
        """
        loss = self.model.loss if not self._overrides_loss else None
        if label is None and (loss or self._has_compiled_metrics()):
            raise ConfigurationError(
                f"label: is missing, and the model is compiled with {'a loss' if loss else 'metrics'} of it; name the "
                "feature that the model predicts, or use add_loss, add_metric, a compute_loss of its own or a task"
            )
        if not isinstance(label, dict):
            return
        prediction = self.trace_prediction(features)
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
        if keras_models.is_keras_3() and len(outputs) == 1 and not isinstance(prediction, dict):
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
        loss = loss_reduction.replica_loss(
            lambda: autograph.converted(self.model.compute_loss)(x, y, prediction, sample_weight), self._divides_loss
        )
        if loss is not None and (self._overrides_loss or y is None):
            self._means["loss"].update_state(loss_reduction.replica_mean(loss), sample_weight=batch_size(x, y))
        return loss

    def _update_metrics(self, y: Any, prediction: Any, sample_weight: Any) -> None:
        self.model.compiled_metrics.update_state(y, prediction, sample_weight)


class CompiledKeras3Model(CompiledModel):
    """Adapts a compiled Keras 3 model."""

    def __init__(self, model: tf.keras.Model):
        super().__init__(model)
        if not self.applies_gradients:
            loss_reduction.use_sums_of_added_losses(model)

    @override
    def _build(self, batch: Any) -> None:
        # Keras builds losses and metrics from the first batch, which fails inside a
        # loop of a graph.
        if not any(isinstance(value, tf.SparseTensor | tf.RaggedTensor) for value in tf.nest.flatten(batch)):
            self.model._symbolic_build(data_batch=batch)
            return
        # `_symbolic_build` supports dense features only.
        named = set(keras_models.named_inputs(self.model))
        features = {name: batch[0][name] for name in (named if named and named <= set(batch[0]) else batch[0])}
        outputs = self.trace_prediction(features)
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
        loss = loss_reduction.replica_loss(
            lambda: self.model._compute_loss(x, y, prediction, sample_weight, training=training), self._divides_loss
        )
        # Keras 2 updates the metric called "loss", weighted by the number of examples,
        # in `compute_loss`.
        mean, size = loss_reduction.replica_mean(loss), batch_size(x, y)
        self.model._loss_tracker.update_state(mean, sample_weight=size)
        if self._loss_metric() is None:
            self._means["loss"].update_state(mean, sample_weight=size)
        return loss

    @override
    def _update_metrics(self, y: Any, prediction: Any, sample_weight: Any) -> None:
        if self.model._compile_metrics is not None:
            self.model._compile_metrics.update_state(y, prediction, sample_weight)


def _as_fit_passes(batch: Any) -> Any:
    return batch if len(batch) > 1 else batch[0]

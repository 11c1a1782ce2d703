"""Adapts a compiled Keras 3 model."""

from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module.keras import keras_models, loss_reduction
from tfx_distribute.trainer_module.keras.model_adapters.adapter import batch_size
from tfx_distribute.trainer_module.keras.model_adapters.compiled import CompiledModel


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
        named = keras_models.named_inputs(self.model)
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

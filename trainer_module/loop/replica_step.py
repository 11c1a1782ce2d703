"""Computes what one replica does in a step: gradients, their application, metrics."""

from typing import Any, TypeAlias

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras import keras_models, loss_reduction
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.loop import gradients as gradients_lib
from tfx_distribute.trainer_module.loop import step_timing
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy

# By the index of their variable; a variable that the loss does not depend on has none.
Gradients: TypeAlias = dict[int, Any]


class ReplicaStep:
    """Computes one replica's part of a training step, within a graph.

    Create it in the strategy's scope. `zeros` is a batch, with which variables are
    created that Keras would create in the first step.

    Attributes:
      measures_peers: True if a step measures how long it waits for other replicas.

    Raises:
      ConfigurationError: The model has no trainable variables, or its own train_step
        does not work with the options.
    """

    def __init__(self, model_adapter: ModelAdapter, strategy: tf.distribute.Strategy, options: TrainingOptions, zeros: Any):
        self._adapter = model_adapter
        self._is_alone = strategy.num_replicas_in_sync == 1
        model_adapter.prepare(zeros)
        variables = model_adapter.model.trainable_variables
        if not variables:
            raise ConfigurationError("module: the model has no trainable variables, or base_model.freeze freezes all")
        if not model_adapter.applies_gradients:
            gradients_lib.prepare(model_adapter.optimizer, variables)
        elif options.gradient_accumulation_steps > 1:
            raise ConfigurationError(
                "module: the model has a train_step of its own, which applies gradients by itself; write "
                "gradient_accumulation_steps=1, or return a task with train_step and eval_step"
            )
        self.gradients = self._gradients
        is_mesh = isinstance(strategy, MeshStrategy)
        # Keras 3 sets the model's jit_compile itself if it sees a GPU, so it is ignored
        # there. DTensor places each operation by itself.
        if options.jit_compile or (not keras_models.is_keras_3() and model_adapter.model.jit_compile and not is_mesh):
            # The update of the weights is left out: it communicates between replicas,
            # which a compiled function cannot do.
            self.gradients = tf.function(self._gradients, jit_compile=True, reduce_retracing=True)
        is_measurable = not (step_timing.computes_behind_host() or model_adapter.applies_gradients or self._is_alone)
        # DTensor has no operation for the time of day.
        self.measures_peers = is_measurable and not is_mesh

    def train(self, batch: Any, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs a step on one batch; returns the loss, and the seconds of `apply`."""
        if self._adapter.applies_gradients:
            return self._adapter.train_step(*batch), tf.zeros([], tf.float64)
        # Without accumulation, a single replica has all examples of the step.
        loss, gradients = self.gradients(batch, 1.0 if self._is_alone else share)
        return loss, self.apply(gradients)

    def _gradients(self, batch: Any, share: tf.Tensor | float) -> tuple[tf.Tensor, Gradients]:
        """Computes the loss of a batch, and gradients weighted by `share`.

        `share` is the part of the step's examples that the batch has.
        """

        def compute_loss() -> tf.Tensor:
            with loss_reduction.replica_share(share):
                return self._adapter.train_step(*batch)

        variables = self._adapter.model.trainable_variables
        loss, gradients = gradients_lib.compute(self._adapter.optimizer, compute_loss, variables, share)
        return loss, {index: gradient for index, gradient in enumerate(gradients) if gradient is not None}

    def dense_gradients(self, batch: Any, share: tf.Tensor | float) -> tuple[tf.Tensor, Gradients]:
        """Computes the gradients as dense tensors, those of embeddings too."""
        loss, gradients = self.gradients(batch, share)
        return loss, {index: tf.convert_to_tensor(gradient) for index, gradient in gradients.items()}

    def add_gradients(self, batch: Any, share: tf.Tensor, previous: Gradients) -> tuple[tf.Tensor, Gradients]:
        """Adds the gradients of another batch of the step."""
        loss, gradients = self.dense_gradients(batch, share)
        return loss, {index: previous[index] + gradient for index, gradient in gradients.items()}

    def apply(self, gradients: Gradients) -> tf.Tensor:
        """Sums and applies gradients; returns the seconds that the sum took."""
        variables = self._adapter.model.trainable_variables
        return gradients_lib.apply(self._adapter.optimizer, gradients, variables, self.measures_peers)

    def evaluate(self, batch: Any) -> None:
        """Updates the metrics from a batch of an evaluation."""
        self._adapter.eval_step(*batch)

"""The common interface of everything that can be trained."""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data import python_operations
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.job.training_job import LabelRanges
from tfx_distribute.trainer_module.keras import autograph, keras_models


class ModelAdapter:
    """The common interface of everything that can be trained.

    Attributes:
      model: The Keras model that is trained and exported.
      applies_gradients: True if `train_step` also applies the gradients, because it
        calls the model's own `train_step`.
      prediction: The model's predictions without values; None until it is traced.
      python_operation: Name of an operation that calls Python to predict, if any.
    """

    model: tf.keras.Model
    optimizer: Any
    applies_gradients = False
    prediction: Any = None
    python_operation: str | None = None

    def _model_state(self) -> dict[str, Any]:
        """Returns model and optimizer for `tf.train.Checkpoint(**state)`."""
        random_states = keras_models.random_states(self.model)
        return {**keras_models.state(self.model), "optimizer": self.optimizer, "random": random_states}

    def required_features(self, features: Features) -> set[str]:
        """Returns the names of the features that the steps read.

        These are all but labels and weights if the model does not say.
        """
        return set(features.inputs())

    def check_labels(self, features: Features, ranges: LabelRanges) -> None:
        """Raises ConfigurationError if the losses cannot learn from the labels."""

    def prepare(self, batch: Any) -> None:
        """Creates the variables that Keras would otherwise create in the first step.

        Call this in the strategy's scope. `batch` has zeros: features, then label and
        weights if there are any.
        """
        if not all(layer.built for layer in self.model._flatten_layers()):
            # Only traces the model: replicas have nothing to compute yet.
            self.trace_prediction(batch[0])

    def trace_prediction(self, features: Any) -> Any:
        """Returns the model's predictions without values; the first call traces it."""
        if self.prediction is None:
            try:
                traced = tf.function(self._predict).get_concrete_function(features)
            except Exception:
                strategy = tf.distribute.get_strategy()
                if isinstance(strategy, tf.distribute.ParameterServerStrategy):  # only a worker can run something
                    raise
                # A layer may communicate with other replicas. It takes longer, because
                # each local replica is traced.
                traced = tf.function(lambda: strategy.run(self._predict, args=(features,))).get_concrete_function()
            self.python_operation = python_operations.find(traced.graph)
        return self.prediction

    def _predict(self, features: Any) -> None:
        # Not returned: replicas of a TPU could return tensors only.
        self.prediction = _without_values(autograph.converted(self.model)(features, training=False))

    def _trace_step(self, step: Callable[..., Any], batch: Any) -> None:
        """Traces a step of the user's own, to create the variables that it creates."""
        strategy = tf.distribute.get_strategy()

        def run_none() -> None:
            for _ in tf.range(0):
                tf.distribute.get_strategy().run(step, args=batch)

        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            # Only a function that a worker runs can be traced. It runs no step.
            coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
            coordinator.schedule(tf.function(run_none))
            coordinator.join()
            return
        # A step that can only run eagerly logs nothing but Keras's metrics.
        with contextlib.suppress(Exception) if self.model.run_eagerly else contextlib.nullcontext():
            tf.function(lambda: strategy.run(step, args=batch)).get_concrete_function()

    def train_step(self, *batch: Any) -> tf.Tensor:
        """Updates the metrics from one replica's batch; returns the mean loss."""
        raise NotImplementedError

    def eval_step(self, *batch: Any) -> None:
        """Updates the metrics from one replica's batch."""
        raise NotImplementedError

    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        """Returns the metrics of training, or of an evaluation, including `loss`."""
        raise NotImplementedError

    def reset_metrics(self) -> None:
        """Resets all metrics."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Returns everything that training changes, for `tf.train.Checkpoint(**state)`.

        The keys are the same in every process.
        """
        raise NotImplementedError


def _without_values(prediction: Any) -> Any:
    return tf.nest.map_structure(lambda value: tf.type_spec_from_value(value) if tf.is_tensor(value) else value, prediction)


def batch_size(features: Any, label: Any = None, *weights: Any) -> tf.Tensor:
    """Returns the number of examples in a batch, an int32 or int64 scalar."""
    first = tf.nest.flatten(features if label is None else label)[0]
    return first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]

"""Defines `Task`, a model with custom training and evaluation steps.

`build_model` may return one instead of a compiled Keras model.
"""

from collections.abc import Sequence
from typing import Any


class Task:
    """A model with custom steps, for when Keras's losses and metrics are not enough.

    The same task runs under every strategy. `build_model(context)` makes it in the
    strategy's scope. A step computes the loss; the training loop handles gradients,
    their sum over replicas, clipping, accumulation and loss scaling.

    Variables, Keras objects and generators in attributes, or in lists and dictionaries
    that are attributes, are part of the saved state.

    ```python
    class Ranking(Task):
        def __init__(self, context):
            self.model = make_network()
            self.optimizer = tf.keras.optimizers.Adam(context.hparams["learning_rate"])
            self.hits = tf.keras.metrics.Mean("hits")
            self.metrics = [self.hits]

        def train_step(self, features, label):
            scores = self.model(features, training=True)
            self.hits.update_state(in_top_10(scores, label))
            return tf.reduce_mean(pairwise_loss(scores, label))

        def eval_step(self, features, label):
            ...  # the same with training=False
    ```

    Attributes:
      model: The Keras model to train and export. Not compiled.
      optimizer: A Keras optimizer, which applies the gradients of `train_step`'s loss.
      metrics: Keras metrics that the steps update; none by default. They are reset
        before each epoch and each evaluation.
    """

    model: Any
    optimizer: Any
    metrics: Sequence[Any] = ()

    def train_step(self, features: Any, label: Any, example_weight: Any = None) -> Any:
        """Computes the loss of one replica's batch.

        Runs in a `tf.function` with a gradient tape.

        Args:
          features: Name of each input feature -> its values, a tensor whose first
            dimension is the batch.
          label: Values of the label, a tensor whose first dimension is the batch.
          example_weight: Weight of each example, a float32 vector, or of each step of a
            sequence, of shape [batch, steps]; only passed if the pipeline sets
            `example_weight` or `class_weight`.

        Returns:
          The mean loss over the batch, a scalar. Losses of single examples would be
          added up, as under `fit`.
        """
        raise NotImplementedError

    def eval_step(self, features: Any, label: Any, example_weight: Any = None) -> Any:
        """Updates the metrics with one replica's batch.

        Args:
          features: As in `train_step`.
          label: As in `train_step`.
          example_weight: As in `train_step`, without class weights; only passed if the
            pipeline sets `example_weight`.

        Returns:
          The mean loss over the batch, a scalar, reported as `val_loss`; or None.
        """
        raise NotImplementedError

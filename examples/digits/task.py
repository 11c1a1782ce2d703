"""Handwritten digits with training steps of one's own: the same network as in `model.py`, as a task."""

import tensorflow as tf
from model import preprocessing_fn  # noqa: F401 (the pipeline calls it)

from tfx_distribute.trainer_module import Task


def build_model(context):
    """A task instead of a compiled model; the strategy it trains under is not its business either."""
    return Digits(context.hparams["hidden_units"], context.hparams["learning_rate"])


class Digits(Task):
    """Says what the loss of a batch is. The rest is the loop's business."""

    def __init__(self, hidden_units, learning_rate):
        pixels = tf.keras.Input((64,), name="pixels")
        hidden = tf.keras.layers.Dense(hidden_units, activation="relu")(pixels)
        hidden = tf.keras.layers.Dense(hidden_units, activation="relu")(hidden)
        logits = tf.keras.layers.Dense(10, dtype="float32")(hidden)
        self.model = tf.keras.Model({"pixels": pixels}, logits)
        self.optimizer = tf.keras.optimizers.Adam(learning_rate)
        self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy("accuracy")
        self.metrics = [self.accuracy]

    def train_step(self, features, label):
        """The loss to train on."""
        return self.loss(label, self.model(features, training=True))

    def eval_step(self, features, label):
        """The loss to show."""
        return self.loss(label, self.model(features, training=False))

    def loss(self, label, logits):
        """The mean cross entropy of a batch, a scalar."""
        self.accuracy.update_state(label, logits)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.squeeze(label, 1), logits))

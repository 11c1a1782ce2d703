"""Classifies handwritten digits with a task: the network of `model.py`."""

import tensorflow as tf
from model import preprocessing_fn  # noqa: F401 (used by the pipeline)

from tfx_distribute.trainer_module import Task


def build_model(context):
    """Returns a task, not a compiled model. It does not depend on the strategy."""
    return Digits(context.hparams["hidden_units"], context.hparams["learning_rate"])


class Digits(Task):
    """Computes the loss of a batch; the training loop does the rest."""

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
        """Returns the loss to train on."""
        return self.loss(label, self.model(features, training=True))

    def eval_step(self, features, label):
        """Returns the loss to report."""
        return self.loss(label, self.model(features, training=False))

    def loss(self, label, logits):
        """Returns the mean cross entropy of a batch, a scalar."""
        self.accuracy.update_state(label, logits)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.squeeze(label, 1), logits))

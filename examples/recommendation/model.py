"""Finds items for users with two towers.

There is no label: a user's item is to be found among the items of the batch.
"""

import tensorflow as tf
import tensorflow_transform as tft

from tfx_distribute.trainer_module import Task


def preprocessing_fn(inputs):
    """Numbers users and items."""
    return {
        name: tft.compute_and_apply_vocabulary(inputs[name], num_oov_buckets=1, vocab_filename=name)
        for name in ("user", "item")
    }


def build_model(context):
    """Returns a task, not a compiled model. It does not depend on the strategy."""
    return TwoTowers(context)


class TwoTowers(Task):
    """Learns embeddings of users and items whose product is large for a choice."""

    def __init__(self, context):
        inputs, towers = {}, []
        for name in ("user", "item"):
            inputs[name] = tf.keras.Input((1,), dtype="int64", name=name)
            size = context.transform_output.vocabulary_size_by_name(name) + 1
            rows = tf.keras.layers.Embedding(size, context.hparams["units"], name=f"{name}_embedding")(inputs[name])
            towers.append(tf.keras.layers.Flatten(name=f"{name}_tower")(rows))
        self.model = tf.keras.Model(inputs, towers)
        self.optimizer = tf.keras.optimizers.Adam(context.hparams["learning_rate"])
        self.top_10 = tf.keras.metrics.SparseTopKCategoricalAccuracy(10, name="top_10")
        self.metrics = [self.top_10]

    def train_step(self, features):
        """Returns the loss to train on."""
        return self.loss(features, training=True)

    def eval_step(self, features):
        """Returns the loss to report."""
        return self.loss(features, training=False)

    def loss(self, features, training):
        """Returns the mean cross entropy of each user's item among the batch's."""
        users, items = self.model(features, training=training)
        products = tf.matmul(users, items, transpose_b=True)
        own_item = tf.range(tf.shape(products)[0])
        self.top_10.update_state(own_item, products)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(own_item, products))

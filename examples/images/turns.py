"""Finds how an image is turned, with the layers of `model.py` and other classes."""

import tensorflow as tf
from model import augment, decode_features, make_network  # noqa: F401 (used by the pipeline)


def build_model(context):
    """Returns a network whose last layer is its own. The others may be frozen."""
    image, x = make_network(context.hparams["filters"])
    probabilities = tf.keras.layers.Dense(4, activation="softmax", dtype="float32", name="turns")(x)
    model = tf.keras.Model({"image": image}, probabilities)
    model.compile(
        tf.keras.optimizers.Adam(context.hparams["learning_rate"]),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model

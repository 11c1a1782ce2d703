"""Handwritten digits: what is done to the data, and the model."""

import tensorflow as tf


def preprocessing_fn(inputs):
    """Brings the pixels, 0 to 16, to 0 to 1."""
    return {"pixels": inputs["pixels"] / 16.0, "digit": inputs["digit"]}


def build_model(context):
    """A small dense network; the strategy it trains under is not its business."""
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = tf.keras.layers.Dense(context.hparams["hidden_units"], activation="relu")(pixels)
    hidden = tf.keras.layers.Dense(context.hparams["hidden_units"], activation="relu")(hidden)
    probabilities = tf.keras.layers.Dense(10, activation="softmax", dtype="float32")(hidden)
    model = tf.keras.Model({"pixels": pixels}, probabilities)
    model.compile(
        optimizer=tf.keras.optimizers.Adam(context.hparams["learning_rate"]),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model

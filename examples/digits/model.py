"""Classifies handwritten digits: the transform and the model."""

import tensorflow as tf


def preprocessing_fn(inputs):
    """Scales pixels from the range 0 to 16 to the range 0 to 1."""
    return {"pixels": inputs["pixels"] / 16.0, "digit": inputs["digit"]}


def build_model(context):
    """Returns a small dense network. It does not depend on the strategy."""
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

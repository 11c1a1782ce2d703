"""A model with a convolution, an embedding and dense layers, for the tests on a GPU."""

import time

import tensorflow as tf


def build_model(context):
    """Returns the model.

    Its hyperparameters: `loss_factor` multiplies the loss and divides the learning
    rate, which only matters where numbers are too large for their type; `step_seconds`
    is a pause after each call.
    """
    factor = context.hparams.get("loss_factor", 1.0)
    image, word = tf.keras.Input((8, 8, 1), name="image"), tf.keras.Input((1,), dtype="int64", name="word")
    shapes = tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    shapes = tf.keras.layers.GlobalAveragePooling2D()(tf.keras.layers.MaxPool2D()(shapes))
    meaning = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(50, 8)(word))
    hidden = tf.keras.layers.Dense(32, activation="relu", name="hidden")(tf.keras.layers.Concatenate()([shapes, meaning]))
    probabilities = tf.keras.layers.Dense(10, activation="softmax", dtype="float32")(hidden)
    model = tf.keras.Model({"image": image, "word": word}, probabilities)

    def loss(labels, predictions):
        return factor * tf.keras.losses.sparse_categorical_crossentropy(labels, predictions)

    model.compile(tf.keras.optimizers.SGD(0.1 / factor, momentum=0.9), loss, metrics=["accuracy"])
    return model


class _Pause(tf.keras.callbacks.Callback):
    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self._seconds)


class _TellLossScale(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        for name in ("loss_scale", "dynamic_scale"):  # Keras 2, and Keras 3
            if hasattr(self.model.optimizer, name):
                print("loss scale", float(getattr(self.model.optimizer, name)), flush=True)


def callbacks(context):
    """Returns what prints the loss scale, and what makes the pauses."""
    seconds = context.hparams.get("step_seconds", 0.0)
    return [_TellLossScale(), *([_Pause(seconds)] if seconds else [])]

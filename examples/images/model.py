"""Classifies images with convolutions; decodes and shifts them while they are read."""

import tensorflow as tf

SIZE = 8  # pixels


def decode_features(features):
    """Turns the PNG file of an example into numbers from 0 to 1."""
    image = tf.io.decode_image(features["image"][0], channels=1, expand_animations=False)
    image = tf.ensure_shape(tf.cast(image, tf.float32) / 255.0, [SIZE, SIZE, 1])
    return {**features, "image": image}


def augment(features, label, seed):
    """Shifts the image by up to one pixel in each direction."""
    padded = tf.pad(features["image"], [[1, 1], [1, 1], [0, 0]])
    return {"image": tf.image.stateless_random_crop(padded, [SIZE, SIZE, 1], seed)}, label


def make_classifier(context, name, classes):
    """Returns a small convolutional network whose last layer has a name of its own."""
    filters = context.hparams["filters"]
    image = tf.keras.Input((SIZE, SIZE, 1), name="image")
    x = tf.keras.layers.Conv2D(filters, 3, padding="same", use_bias=False, name="conv_1")(image)
    x = tf.keras.layers.BatchNormalization(momentum=0.9, name="norm_1")(x)
    x = tf.keras.layers.MaxPool2D()(tf.keras.layers.Activation("relu")(x))
    x = tf.keras.layers.Conv2D(2 * filters, 3, padding="same", activation="relu", name="conv_2")(x)
    x = tf.keras.layers.Flatten()(x)
    probabilities = tf.keras.layers.Dense(classes, activation="softmax", dtype="float32", name=name)(x)
    model = tf.keras.Model({"image": image}, probabilities)
    model.compile(
        tf.keras.optimizers.Adam(context.hparams["learning_rate"]),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def build_model(context):
    """Returns a classifier of digits. It does not depend on the strategy."""
    return make_classifier(context, "digits", 10)

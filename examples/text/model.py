"""Finds the package that a docstring is from, by the mean of its words' embeddings."""

import tensorflow as tf
import tensorflow_transform as tft

VOCABULARY = "words"


def preprocessing_fn(inputs):
    """Splits texts into words and numbers them, from the most frequent one on."""
    texts = tf.strings.regex_replace(tf.strings.lower(inputs["text"][:, 0]), "[^a-z]+", " ")
    words = tf.strings.split(tf.strings.join(["start ", texts]))  # the mean of no words would be NaN
    numbers = tft.compute_and_apply_vocabulary(words.to_sparse(), num_oov_buckets=1, top_k=5000, vocab_filename=VOCABULARY)
    return {"words": numbers, "package": inputs["package"]}


def decode_features(features):
    """Makes the words a vector of any length, of which batches are ragged."""
    return {**features, "words": features["words"].values}


def build_model(context):
    """Returns a model of texts of any length. It does not depend on the strategy."""
    words = tf.keras.Input((None,), dtype="int64", ragged=True, name="words")
    size = context.transform_output.vocabulary_size_by_name(VOCABULARY) + 1
    rows = tf.keras.layers.Embedding(size, context.hparams["units"])(words)
    mean = tf.keras.layers.GlobalAveragePooling1D()(rows)
    probabilities = tf.keras.layers.Dense(4, activation="softmax", dtype="float32")(mean)
    model = tf.keras.Model({"words": words}, probabilities)
    model.compile(
        tf.keras.optimizers.Adam(context.hparams["learning_rate"]),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model

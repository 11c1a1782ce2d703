"""Predicts whether a taxi passenger tips more than a fifth of the fare.

A wide and deep model of taxi trips in Chicago. Vocabularies, bucket boundaries and
means are computed once, by Transform, over all the data.
"""

import tensorflow as tf
import tensorflow_transform as tft

NUMBERS = ("trip_miles", "fare", "trip_seconds")
BUCKETIZED = ("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude")
VOCABULARIES = ("payment_type", "company")
# Integer features -> number of values that each can have.
CATEGORIES = {"trip_start_hour": 24, "trip_start_day": 8, "trip_start_month": 13}

NUM_BUCKETS = 10
VOCABULARY_SIZE = 1000
OUT_OF_VOCABULARY = 10


def preprocessing_fn(inputs):
    """Fills gaps, scales numbers, maps the rest to integers, and adds the label."""
    outputs = {}
    for name in NUMBERS:
        outputs[name] = tft.scale_to_z_score(_dense(inputs[name]))
    for name in BUCKETIZED:
        outputs[name] = tft.bucketize(_dense(inputs[name]), NUM_BUCKETS)
    for name in VOCABULARIES:
        outputs[name] = tft.compute_and_apply_vocabulary(
            _dense(inputs[name]), top_k=VOCABULARY_SIZE, num_oov_buckets=OUT_OF_VOCABULARY, vocab_filename=name
        )
    for name in CATEGORIES:
        outputs[name] = _dense(inputs[name])
    fare = _dense(inputs["fare"])
    outputs["big_tipper"] = tf.cast(_dense(inputs["tips"]) > 0.2 * fare, tf.int64)
    return outputs


def build_model(context):
    """Returns the model.

    The wide part has a weight for each category, the deep part is a dense network on
    the numbers.
    """
    sizes = {
        **{name: NUM_BUCKETS for name in BUCKETIZED},
        **{name: context.transform_output.vocabulary_size_by_name(name) + OUT_OF_VOCABULARY for name in VOCABULARIES},
        **CATEGORIES,
    }
    numbers = {name: tf.keras.Input((1,), name=name) for name in NUMBERS}
    categories = {name: tf.keras.Input((1,), name=name, dtype=tf.int64) for name in sizes}
    wide = tf.keras.layers.concatenate(
        [tf.keras.layers.CategoryEncoding(size, output_mode="one_hot")(categories[name]) for name, size in sizes.items()]
    )
    deep = tf.keras.layers.concatenate(list(numbers.values()))
    for units in (64, 32, 16):
        deep = tf.keras.layers.Dense(units, activation="relu")(deep)
    probability = tf.keras.layers.Dense(1, activation="sigmoid", dtype="float32")(tf.keras.layers.concatenate([wide, deep]))
    model = tf.keras.Model({**numbers, **categories}, probability)
    model.compile(
        optimizer=tf.keras.optimizers.Adam(context.hparams["learning_rate"]),
        loss="binary_crossentropy",
        metrics=[tf.keras.metrics.BinaryAccuracy(name="accuracy"), tf.keras.metrics.AUC(name="auc")],
    )
    return model


def _dense(values):
    """Returns one value for each example, with 0 or the empty string for gaps."""
    if isinstance(values, tf.SparseTensor):
        shape = [values.dense_shape[0], 1]
        values = tf.sparse.to_dense(
            tf.SparseTensor(values.indices, values.values, shape), default_value="" if values.dtype == tf.string else 0
        )
    return tf.ensure_shape(values, [None, 1])

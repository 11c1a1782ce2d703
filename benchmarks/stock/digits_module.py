"""Defines the digits example as a stock TFX module with a hand-written `run_fn`."""

import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.public import tfxio

BATCH = 64
HIDDEN_UNITS = 128
LEARNING_RATE = 0.002


def preprocessing_fn(inputs):
    return {"pixels": inputs["pixels"] / 16.0, "digit": inputs["digit"]}


def _input_fn(file_pattern, data_accessor, transform_output, shuffle):
    return data_accessor.tf_dataset_factory(
        file_pattern,
        tfxio.TensorFlowDatasetOptions(
            batch_size=BATCH, label_key="digit", num_epochs=None if shuffle else 1, shuffle=shuffle
        ),
        transform_output.transformed_metadata.schema,
    )


def build_model():
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = tf.keras.layers.Dense(HIDDEN_UNITS, activation="relu")(pixels)
    hidden = tf.keras.layers.Dense(HIDDEN_UNITS, activation="relu")(hidden)
    probabilities = tf.keras.layers.Dense(10, activation="softmax")(hidden)
    model = tf.keras.Model({"pixels": pixels}, probabilities)
    model.compile(
        optimizer=tf.keras.optimizers.Adam(LEARNING_RATE), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def run_fn(fn_args):
    transform_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    train = _input_fn(fn_args.train_files, fn_args.data_accessor, transform_output, shuffle=True)
    evaluation = _input_fn(fn_args.eval_files, fn_args.data_accessor, transform_output, shuffle=False)
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = build_model()
    epochs = fn_args.custom_config["epochs"]
    model.fit(
        train,
        epochs=epochs,
        steps_per_epoch=fn_args.train_steps // epochs,
        validation_data=evaluation,
        callbacks=[tf.keras.callbacks.TensorBoard(fn_args.model_run_dir, write_graph=False)],
        verbose=2,
    )
    model.transform_layer = transform_output.transform_features_layer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples):
        spec = transform_output.raw_feature_spec()
        spec.pop("digit")
        return {"outputs": model(model.transform_layer(tf.io.parse_example(examples, spec)))}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform_features(examples):
        return model.transform_layer(tf.io.parse_example(examples, transform_output.raw_feature_spec()))

    # As in TFX's own examples, with the Keras that TensorFlow has by default.
    tf.saved_model.save(
        model, fn_args.serving_model_dir, signatures={"serving_default": serve, "transform_features": transform_features}
    )

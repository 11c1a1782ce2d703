"""Trains an example's model in a hand-written `run_fn`, as a stock TFX module.

TFX packages the folder of this file, where `model` is the example's module.
"""

import types

import tensorflow as tf
import tensorflow_transform as tft
from model import build_model, preprocessing_fn  # noqa: F401 (the Transform calls the latter)
from tfx_bsl.public import tfxio

BATCH = 64


def run_fn(fn_args):
    config = fn_args.custom_config
    transform_output = tft.TFTransformOutput(fn_args.transform_graph_path)

    def read(file_pattern, num_epochs):
        return fn_args.data_accessor.tf_dataset_factory(
            file_pattern,
            tfxio.TensorFlowDatasetOptions(
                batch_size=BATCH, label_key=config["label"], num_epochs=num_epochs, shuffle=num_epochs is None
            ),
            transform_output.transformed_metadata.schema,
        )

    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = build_model(types.SimpleNamespace(hparams=config["hparams"], transform_output=transform_output))
    model.fit(
        read(fn_args.train_files, None),
        epochs=config["epochs"],
        steps_per_epoch=fn_args.train_steps // config["epochs"],
        validation_data=read(fn_args.eval_files, 1),
        callbacks=[tf.keras.callbacks.TensorBoard(fn_args.model_run_dir, write_graph=False)],
        verbose=2,
    )
    model.transform_layer = transform_output.transform_features_layer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples):
        spec = transform_output.raw_feature_spec()
        spec.pop(config["not_served"])
        return {"outputs": model(model.transform_layer(tf.io.parse_example(examples, spec)))}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform_features(examples):
        return model.transform_layer(tf.io.parse_example(examples, transform_output.raw_feature_spec()))

    # As in TFX's own examples, with the Keras that TensorFlow has by default.
    tf.saved_model.save(
        model, fn_args.serving_model_dir, signatures={"serving_default": serve, "transform_features": transform_features}
    )

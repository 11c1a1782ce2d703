"""The trained model -> one SavedModel, complete or not there at all."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features, FeatureSpec
from tfx_distribute.trainer_module.training.model_adapters import input_names, is_keras_3

_HALVES = (tf.float16, tf.bfloat16)


def export(model: tf.keras.Model, features: Features, folder: str) -> None:
    """Saves the model for serving and evaluation. Every process of a strategy in step has to.

    The SavedModel has the signature `serving_default`: a vector of serialized tf.Examples as the data's source gives
    them, without the label, through the transform graph and the model to `outputs`, or to the names of a model that
    returns several (`output_0` and so on where they have none); and, where there is a transform
    graph, `transform_features`: the same examples to the transformed features, the label included, for Evaluator.
    Half-precision predictions are returned as float32, which every client can read.

    Args:
      model: A trained Keras model.
      features: The features of the examples that it was trained on.
      folder: Where the SavedModel appears.
    """
    beside = f"{folder}.partial"
    if tf.io.gfile.exists(beside):
        tf.io.gfile.rmtree(beside)
    _save(model, features, beside)
    if tf.io.gfile.exists(folder):  # of an earlier try; the new one is complete
        tf.io.gfile.rmtree(folder)
    tf.io.gfile.rename(beside, folder)


def _save(model: tf.keras.Model, features: Features, folder: str) -> None:
    signatures = _signatures(model, features)
    if is_keras_3():
        tf.saved_model.save(model, folder, signatures=signatures)
    else:  # Keras 2 has its own way of writing a SavedModel, and can load it again too, for a warm start
        model.save(folder, save_format="tf", signatures=signatures)


def _signatures(model: tf.keras.Model, features: Features) -> dict[str, tf.types.experimental.GenericFunction]:
    examples = tf.TensorSpec([None], tf.string, name="examples")
    inputs = input_names(model, set(features.inputs()))
    request_spec = features.raw_needed_for(inputs)
    if features.transform is None:

        @tf.function(input_signature=[examples])
        def serve_examples(examples):  # type: ignore[no-untyped-def]
            return _named(model(tf.io.parse_example(examples, request_spec), training=False))

        return {"serving_default": serve_examples}

    # A SavedModel holds only what hangs on the saved object.
    model.transform_layer = features.make_transform_layer()

    @tf.function(input_signature=[examples])
    def serve(examples):  # type: ignore[no-untyped-def]
        transformed = _transform(model.transform_layer, examples, request_spec)
        return _named(model({name: transformed[name] for name in inputs}, training=False))

    @tf.function(input_signature=[examples])
    def transform_features(examples):  # type: ignore[no-untyped-def]
        return _transform(model.transform_layer, examples, features.raw)

    return {"serving_default": serve, "transform_features": transform_features}


def _named(prediction: Any) -> dict[str, tf.Tensor]:
    """Names a model's predictions as a signature returns them: as the model does, or else `outputs`."""
    if isinstance(prediction, Mapping):
        named = dict(prediction)
    elif isinstance(prediction, list | tuple):
        named = {f"output_{index}": value for index, value in enumerate(prediction)}
    else:
        named = {"outputs": prediction}
    return {name: tf.cast(value, tf.float32) if value.dtype in _HALVES else value for name, value in named.items()}


@tf.autograph.experimental.do_not_convert  # nothing of the user's in it, and converting TFT's own code takes a second
def _transform(layer: tf.keras.layers.Layer, examples: tf.Tensor, spec: FeatureSpec) -> dict[str, tf.Tensor]:
    return layer(tf.io.parse_example(examples, spec))

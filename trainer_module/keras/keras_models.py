"""Reads properties of models that Keras 2 and Keras 3 keep in different places."""

from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features


def input_names(model: tf.keras.Model, features: Features) -> set[str]:
    """Returns the names of the features that a model reads.

    A label may be one of them, as for an autoencoder. All features but labels and
    weights, if the inputs have no names or names of other things.
    """
    names = set(named_inputs(model))
    return names if names and names <= set(features.decoded) else set(features.inputs())


def input_specs(model: tf.keras.Model) -> dict[str, tf.TypeSpec]:
    """Returns the types of a model's inputs by name; empty if they have no names."""
    # A subclass of Keras 2 may have names without tensors.
    return {name: _type_spec(tensor) for name, tensor in zip(named_inputs(model), _inputs(model), strict=False)}


def _type_spec(tensor: Any) -> tf.TypeSpec:
    if not is_keras_3():
        return tensor.type_spec
    kinds = {"sparse": tf.SparseTensorSpec, "ragged": tf.RaggedTensorSpec}
    kind = next((spec for name, spec in kinds.items() if getattr(tensor, name, False)), tf.TensorSpec)
    return kind(tensor.shape, tensor.dtype)


def named_inputs(model: tf.keras.Model) -> list[str]:
    """Returns the names of a model's inputs; empty if they have none."""
    return [tensor.name for tensor in _inputs(model)] if is_keras_3() else list(getattr(model, "input_names", None) or ())


def _inputs(model: tf.keras.Model) -> list[Any]:
    return list(getattr(model, "inputs", None) or ())


def state(model: tf.keras.Model) -> dict[str, Any]:
    """Returns a built model for `tf.train.Checkpoint(**state)`.

    TensorFlow does not see layers in lists and dictionaries of a Keras 3 model, so its
    weights are listed too.
    """
    return {"model": model, **({"weights": [weight.value for weight in model.weights]} if is_keras_3() else {})}


def random_states(model: tf.keras.Model) -> list[Any]:
    """Returns the random states of a built model's layers, such as dropout.

    Keras leaves them out of checkpoints: a resumed training would draw the same random
    numbers again.
    """
    if is_keras_3():
        weights = {id(weight) for weight in model.weights}
        return [variable.value for variable in model.variables if id(variable) not in weights]
    drawing = [getattr(layer, "_random_generator", None) for layer in model._flatten_layers()]
    generators = [getattr(each, "_generator", None) for each in drawing]
    return [generator for generator in generators if generator is not None]


def is_keras_3() -> bool:
    """Returns True if `tf.keras` is Keras 3 in this process."""
    return tf.keras.Model.__module__.startswith("keras.")  # Keras 2 is tf_keras


def generation() -> str:
    """Returns the name of this process's Keras, such as `Keras 2`."""
    return f"Keras {3 if is_keras_3() else 2}"


def is_optimizer(value: Any) -> bool:
    """Returns True for an optimizer of any kind, including the user's own.

    Variables are not asked: a distributed one that lacks an attribute sums up its
    values over all workers to find it.
    """
    return not isinstance(value, type | tf.Variable) and hasattr(value, "apply_gradients")


def keras_3_kinds() -> tuple[type, ...]:
    """Returns the classes of Keras 3 that have variables; none with Keras 2."""
    if not is_keras_3():
        return ()
    return (
        tf.keras.Variable,
        tf.keras.layers.Layer,
        tf.keras.metrics.Metric,
        tf.keras.optimizers.Optimizer,
        tf.keras.random.SeedGenerator,
    )

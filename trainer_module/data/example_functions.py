"""Runs the module's functions of single examples, in tf.data, after the cache.

`decode_features(features)` makes features from what is stored, such as images from
JPEG files: for training, for evaluation, and in the exported model.
`augment(features, label, seed)` varies the examples to train on.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.user_code import module_loader

# Name of a function -> its arguments.
_ARGUMENTS = {"decode_features": ("features",), "augment": ("features", "label", "seed")}


@dataclass(frozen=True)
class ExampleFunctions:
    """The functions of the user's module that take a single example.

    Attributes:
      decode: Turns stored features into those of the model; None to leave them.
      augment: Varies an example to train on; None to leave it.
      resources: Lookup tables and the like of the module, which a SavedModel with
        `decode` has to hold.
    """

    decode: Callable[..., Any] | None = None
    augment: Callable[..., Any] | None = None
    resources: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        """Returns True if there is a function."""
        return bool(self.decode or self.augment)

    def decode_batch(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch's decoded features, by name."""
        if self.decode is None:
            return dict(features)
        decoded = _map_examples(self.decode, (dict(features),), "decode_features")
        if not isinstance(decoded, dict):
            raise ConfigurationError(
                f"module: decode_features returns a {type(decoded).__name__}; return a dictionary of features by name"
            )
        return {name: values for name, values in decoded.items() if values is not None}

    def split_batch(
        self,
        features: Mapping[str, Any],
        split: Callable[[dict[str, Any]], tuple[Any, ...]],
        seeds: tf.Tensor | None = None,
    ) -> tuple[Any, ...]:
        """Returns a batch's inputs, label and weights, decoded and augmented.

        `split` takes decoded features, and returns the model's inputs, the label if
        there is one, and weights if there are any. `seeds`, of shape [batch, 2], are
        two for each example; None to augment nothing.
        """
        augment = self.augment if seeds is not None else None
        if augment is None:
            return split(self.decode_batch(features))

        def call(features: dict[str, Any], seed: tf.Tensor) -> tuple[Any, ...]:
            given = split(self.decode(features) if self.decode else features)
            returned = augment(given[0], given[1] if given[1:] else None, seed)
            if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[0], dict):
                raise ConfigurationError(
                    "module: augment does not return features and label; end it with return features, label"
                )
            return *map(_like, returned, given, ("features", "label")), *given[2:]

        return tuple(_map_examples(call, (dict(features), seeds), "augment"))


def load(module: UserModule) -> ExampleFunctions:
    """Imports the user's module and returns its functions of single examples."""
    functions = {name: module_loader.load_optional(module, name) for name in _ARGUMENTS}
    for name, function in functions.items():
        try:
            if function:
                inspect.signature(function).bind(*_ARGUMENTS[name])
        except TypeError as error:
            raise ConfigurationError(
                f"module: {name} takes other arguments; write def {name}({', '.join(_ARGUMENTS[name])})"
            ) from error
    decode, augment = (function and _make_graph_function(function) for function in functions.values())
    resources = tuple(module_loader.find_all(module, tf.__internal__.tracking.Trackable)) if decode else ()
    return ExampleFunctions(decode, augment, resources)


def _make_graph_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of its own, which AutoGraph converts in any context.

    It gets copies of dictionaries, which it may change.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        copies = [dict(argument) if isinstance(argument, dict) else argument for argument in arguments]
        return function(*copies)

    return tf.function(call)


@tf.autograph.experimental.do_not_convert  # the module's functions convert themselves
def _map_examples(function: Callable[..., Any], batch: tuple[Any, ...], name: str) -> Any:
    """Calls a function for each example of a batch, and makes a batch of the results.

    Vectors whose length depends on the example become ragged.
    """
    specs = [tf.nest.map_structure(_spec_of_example, argument) for argument in batch]
    outputs = tf.function(function, autograph=False).get_concrete_function(*specs).structured_outputs
    signature = tf.nest.map_structure(lambda output: _signature_of(output, name), outputs)
    return tf.map_fn(lambda arguments: function(*arguments), batch, fn_output_signature=signature)


def _spec_of_example(values: Any) -> tf.TypeSpec:
    """Returns the type of one example's part of a batch, as `tf.map_fn` passes it."""
    shape = values.shape[1:]
    if isinstance(values, tf.SparseTensor):
        return tf.SparseTensorSpec(shape, values.dtype)
    if isinstance(values, tf.RaggedTensor) and values.ragged_rank > 1:
        return tf.RaggedTensorSpec(shape, values.dtype, values.ragged_rank - 1, values.row_splits.dtype)
    return tf.TensorSpec(shape, values.dtype)


def _signature_of(output: Any, name: str) -> tf.TypeSpec:
    """Returns the type of a result that `tf.map_fn` puts into a batch."""
    spec = tf.type_spec_from_value(output)
    if not isinstance(spec, tf.TensorSpec) or spec.shape.is_fully_defined():
        return spec
    if spec.shape.rank is None or None in spec.shape[1:]:
        raise ConfigurationError(
            f"module: {name} returns values of shape {spec.shape}, and the examples of a batch need one shape; use "
            "tf.ensure_shape, or tf.image.resize for images of different sizes"
        )
    return tf.RaggedTensorSpec(spec.shape, spec.dtype, ragged_rank=0)


def _like(augmented: Any, given: Any, what: str) -> Any:
    """Returns an example's augmented values with the shapes that they had before."""
    try:
        tf.nest.assert_same_structure(given, augmented, expand_composites=True)
        return tf.nest.map_structure(_with_shape_of, given, augmented)
    except (TypeError, ValueError) as error:
        before, after = (tf.nest.map_structure(_describe, value) for value in (given, augmented))
        raise ConfigurationError(
            f"module: augment changes the type of the {what}: {before} before, {after} after; return values of the same "
            "names, types and shapes, because examples are evaluated and served without it"
        ) from error


def _with_shape_of(given: Any, augmented: Any) -> Any:
    if given.dtype != augmented.dtype or not given.shape.is_compatible_with(augmented.shape):
        raise TypeError
    return tf.ensure_shape(augmented, given.shape) if isinstance(given, tf.Tensor) else augmented


def _describe(values: Any) -> str:
    return f"{values.dtype.name}{list(values.shape)}"

"""Exports the trained model as one SavedModel."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import tensorflow as tf

from tfx_distribute.trainer_module.asking import Questions
from tfx_distribute.trainer_module.data import model_inputs
from tfx_distribute.trainer_module.data.feature_specs import Features, FeatureSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras.keras_models import input_names, input_specs, is_keras_3
from tfx_distribute.trainer_module.state.base_model import weight_files

_HALF_TYPES = (tf.float16, tf.bfloat16)


def export(model: tf.keras.Model, features: Features, folder: str) -> None:
    """Saves the model for serving and evaluation.

    If the processes of a strategy train in step, all of them have to call this.

    The SavedModel has these signatures:

    * `serving_default`: takes `examples`, a string vector of serialized tf.Examples as
      the data's source provides them, without the label. Applies the transform graph,
      if any, and the model. Returns the predictions as `outputs`; those of several
      outputs under their names if they are a dictionary or have labels of their own,
      else as `output_0` and so on. Those of an output that has several itself are
      called such as `head_mean` and `head_0`.
      Half-precision predictions are returned as float32, which every client can read.
      The argument is called `serialized_examples` if a column is called `examples`.
    * `transform_features`, only with a transform graph: takes the same examples, with
      labels and weights, and returns the transformed features for the Evaluator. Labels
      and weights are those that `decode_features` makes of them.
    * `transformed_labels`, with `decode_features` and without a transform graph: takes
      the same examples and returns the decoded labels and weights. TFMA calls a
      signature of this name by default.

    An existing SavedModel in `folder` is replaced.
    """
    if tf.io.gfile.exists(folder):  # from an earlier try, which has no result
        tf.io.gfile.rmtree(folder)
    signatures = _signatures(model, features)
    model.decode_resources = features.functions.resources
    weight_files.name_weights(model)
    if is_keras_3():
        with _without_own_signature(model):
            tf.saved_model.save(model, folder, signatures=signatures)
    else:  # only Keras 2's own format of a SavedModel can be loaded as a Keras model again
        model.save(folder, save_format="tf", signatures=signatures, include_optimizer=False)


def check_prediction(model: tf.keras.Model, features: Features, prediction: Any) -> None:
    """Checks that a model can be exported, or raises ConfigurationError.

    `prediction` is what the model returns, without values.
    """
    if is_keras_3():
        _check_names(model)
    elif not _has_texts_as_keys(prediction):
        raise ConfigurationError(
            "module: the model returns a dictionary with keys that are not texts, with which Keras 2 cannot save it; write "
            '"0" instead of 0, or str(key)'
        )
    for name, value in _name_outputs(prediction, _output_names(model, features)).items():
        if not isinstance(value, tf.TensorSpec):
            kind = value.value_type.__name__ if isinstance(value, tf.TypeSpec) else type(value).__name__
            raise ConfigurationError(
                f"module: the model returns {name}, a {kind}, which cannot be served; return a tf.Tensor, such as that of "
                "to_tensor() or tf.sparse.to_dense"
            )


def make_questions(model: tf.keras.Model, features: Features, folder: str, examples: tuple[str, ...]) -> Questions:
    """Returns what to ask an exported model, of raw examples in TFRecord files."""
    needed = features.raw_needed_for(features.stored_for(input_names(model, features)))
    of_targets = features.raw_needed_for(features.targets() & set(features.examples))
    return Questions(folder, examples, tuple(sorted(set(of_targets) - set(needed))), tuple(features.optional(needed)))


def _check_names(model: tf.keras.Model) -> None:
    """Checks that no variable of a Keras 3 model has a name that begins with _."""
    variables = [*model.weights, *getattr(model.optimizer, "variables", ())]
    hidden = next((variable.path for variable in variables if variable.path.startswith("_")), None)
    if hidden:
        name = hidden.partition("/")[0].strip("_")
        raise ConfigurationError(
            f"module: the variable {hidden} has a name that begins with _, from its layer or optimizer, which TensorFlow "
            f'cannot export; call super().__init__(name="{name}") in its class, or rename the class'
        )


def _without_own_signature(model: tf.keras.Model) -> contextlib.AbstractContextManager[None]:
    """Removes the signature that Keras 3 adds, within the block.

    Nobody asks for it, and Keras cannot trace it for ragged inputs.
    """
    name = "_default_save_signature"
    owner = next(cls for cls in type(model).__mro__ if name in vars(cls))
    return mock.patch.object(owner, name, None)


def _signatures(model: tf.keras.Model, features: Features) -> dict[str, tf.types.experimental.GenericFunction]:
    examples = [tf.TensorSpec([None], tf.string, name=_name_argument({*features.raw, *features.examples}))]
    functions = _SignatureFunctions(model, features)
    signatures = {"serving_default": functions.serve}
    if features.transform:
        # A SavedModel contains only what the saved object refers to.
        model.transform_layer = features.make_transform_layer()
        signatures["transform_features"] = functions.transform_features
    elif features.functions.decode and features.targets():
        signatures["transformed_labels"] = functions.transformed_labels
    return {name: tf.function(function, examples) for name, function in signatures.items()}


def _name_argument(columns: set[str]) -> str:
    """Returns a name for the signatures' argument that no column has.

    TFMA would call a signature with the column that has its argument's name.
    """
    name = "examples"
    while name in columns:
        name = f"serialized_{name}"
    return name


class _SignatureFunctions:
    """The functions of a SavedModel's signatures.

    The model has a `transform_layer` if there is a transform graph.
    """

    def __init__(self, model: tf.keras.Model, features: Features):
        self._model, self._features = model, features
        self._inputs, self._input_specs = input_names(model, features), input_specs(model)
        self._stored = features.stored_for(self._inputs)
        self._request_spec = features.raw_needed_for(self._stored)
        self._output_names = _output_names(model, features)

    def serve(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the predictions for examples, transformed if there is a transform."""
        stored = self._read(examples, self._request_spec)
        decoded = self._features.functions.decode_batch({name: stored[name] for name in self._stored})
        inputs = model_inputs.fit({name: decoded[name] for name in self._inputs}, self._input_specs)
        prediction = self._model(inputs, training=False)
        return _without_half_precision(_name_outputs(prediction, self._output_names))

    def transform_features(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the transformed features of examples, labels and weights decoded."""
        transformed = self._read(examples, self._features.raw)
        return {**transformed, **self._decode_targets(transformed)}

    def transformed_labels(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns decoded labels and weights of examples that are not transformed."""
        return self._decode_targets(self._read(examples, self._features.examples))

    def _decode_targets(self, examples: dict[str, Any]) -> dict[str, tf.Tensor]:
        decoded = self._features.functions.decode_batch({name: examples[name] for name in self._features.examples})
        return {name: decoded[name] for name in self._features.targets()}

    @tf.autograph.experimental.do_not_convert  # contains no user code, and converting TFT's own code takes a second
    def _read(self, examples: tf.Tensor, spec: FeatureSpec) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(examples, spec)
        return self._model.transform_layer(parsed) if self._features.transform else parsed


def _output_names(model: tf.keras.Model, features: Features) -> list[str]:
    """Returns the names of the outputs if labels have some; empty otherwise.

    The Evaluator looks for the outputs that labels were given to.
    """
    return list(getattr(model, "output_names", None) or ()) if isinstance(features.label, Mapping) else []


@tf.autograph.experimental.do_not_convert  # contains no user code
def _name_outputs(prediction: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns a model's predictions by the names that `serving_default` gives them.

    `names` are those of `_output_names`; a dictionary has names of its own. Raises
    ConfigurationError if there are no predictions, or two have the same name.
    """
    if names and not isinstance(prediction, Mapping):
        return dict(zip(names, tf.nest.flatten(prediction), strict=True))
    parts = _flatten(prediction)
    if not parts:
        raise ConfigurationError("module: the model returns no prediction; return a tensor, or a dictionary of them")
    found = [name for name, _ in parts]
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice:
        raise ConfigurationError(
            f"module: two of the model's outputs would be served as {twice}; return a dictionary of tensors, with "
            "other names"
        )
    return dict(parts)


def _has_texts_as_keys(prediction: Any) -> bool:
    if isinstance(prediction, Mapping):
        return all(isinstance(key, str) and _has_texts_as_keys(value) for key, value in prediction.items())
    return not isinstance(prediction, list | tuple) or all(map(_has_texts_as_keys, prediction))


def _flatten(prediction: Any, name: str = "") -> list[tuple[str, Any]]:
    """Returns the names and values of a prediction's parts that are not None."""
    if isinstance(prediction, Mapping):
        return [part for key, value in prediction.items() for part in _flatten(value, f"{name}_{key}" if name else str(key))]
    if isinstance(prediction, list | tuple):
        name = name or "output"
        return [part for index, value in enumerate(prediction) for part in _flatten(value, f"{name}_{index}")]
    return [] if prediction is None else [(name or "outputs", prediction)]


@tf.autograph.experimental.do_not_convert  # contains no user code
def _without_half_precision(outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {name: tf.cast(value, tf.float32) if value.dtype in _HALF_TYPES else value for name, value in outputs.items()}

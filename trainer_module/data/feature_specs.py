"""Finds the features of examples, transformed or not, and those that a model needs."""

import copy
import functools
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfx_distribute.trainer_module.data import model_inputs, python_operations
from tfx_distribute.trainer_module.data.example_functions import ExampleFunctions
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.labels import FeatureNames, names_in
from tfx_distribute.trainer_module.job.training_job import TrainingData

FeatureSpec = dict[str, Any]  # name -> tf.io.FixedLenFeature, VarLenFeature, ...


class Features:
    """The features of a job's examples.

    Attributes:
      functions: The module's functions of single examples.
      transform: The transform graph that made the examples; None without a transform.
      raw: Feature spec of the tf.Examples in the data's source.
      examples: Feature spec of the tf.Examples to train on, transformed if there is a
        transform graph.
      decoded: Feature spec of what `decode_features` makes of them; the same without
        such a function.
      label: As in `TrainingData`; all of its features are in `decoded`.
      example_weight: As in `TrainingData`; all of its features are in `decoded`.
    """

    def __init__(self, data: TrainingData, functions: ExampleFunctions = ExampleFunctions()):  # noqa: B008 (frozen)
        self.functions = functions
        self._transform_graph = data.transform_graph
        self._python_in_decode: str | None = None
        if data.transform_graph:
            python_operations.check_transform_graph(data.transform_graph)
            self.transform: tft.TFTransformOutput | None = tft.TFTransformOutput(data.transform_graph)
            self.raw: FeatureSpec = self.transform.raw_feature_spec()
            self.examples: FeatureSpec = self.transform.transformed_feature_spec()
            self._raw_schema = self.transform.raw_metadata.schema
        else:
            self.transform = None
            self._raw_schema = _read_schema(data.schema)
            self.raw = self.examples = tft.tf_metadata.schema_utils.schema_as_feature_spec(self._raw_schema).feature_spec
        self.decoded = self._decoded_spec(self.examples) if functions.decode else self.examples
        self.label = data.label
        self.example_weight = data.example_weight
        for argument, names in (("label", data.label), ("example_weight", data.example_weight)):
            for name in names_in(names):
                self._check_is_in_every_example(argument, name)
        self._inputs = set(self.decoded) - self.targets()
        self._input_specs: Mapping[str, tf.TypeSpec] = {}

    def inputs(self) -> FeatureSpec:
        """Returns the features that a model may read: all but labels and weights."""
        return {name: spec for name, spec in self.decoded.items() if name in self._inputs}

    def parse(self, serialized: tf.Tensor, seeds: tf.Tensor | None = None) -> tuple[Any, ...]:
        """Parses and decodes a batch of serialized tf.Examples.

        `seeds` are two for each example, to augment them. Returns the inputs by name,
        the label (or labels by output) if there is one, and the weight (or weights)
        likewise.
        """
        parsed = tf.io.parse_example(serialized, self.examples)
        inputs, *targets = self.functions.split_batch(parsed, self._split, seeds)
        return model_inputs.fit(inputs, self._input_specs), *targets

    def _split(self, example: dict[str, Any]) -> tuple[Any, ...]:
        targets = [_look_up(names, example) for names in (self.label, self.example_weight) if names is not None]
        return {name: example[name] for name in self.inputs()}, *targets

    def select(self, names: set[str], input_specs: Mapping[str, tf.TypeSpec] | None = None) -> "Features":
        """Returns a copy with only the inputs `names`, labels and weights.

        `names` are in `decoded`; a label is also an input if it is one of them, as for
        an autoencoder. `parse` fits the features to `input_specs`, the types of the
        model's inputs by name; see `model_inputs.fit`.
        """
        selected = copy.copy(self)
        selected._inputs, selected._input_specs = names, input_specs or {}
        if not self.functions:  # those may read any feature
            kept = names | self.targets()
            selected.examples = selected.decoded = {name: spec for name, spec in self.examples.items() if name in kept}
        if self.functions.decode:
            self._check_decodes_requests(names)
        return selected

    def stored_for(self, inputs: set[str]) -> set[str]:
        """Returns the names in `examples` that a request for `inputs` has to contain.

        `decode_features` may read any feature, but finds labels and weights only if the
        model reads them too. `inputs` are names in `decoded`.
        """
        return (set(self.examples) - self.targets()) | (inputs & set(self.examples)) if self.functions.decode else inputs

    def _check_decodes_requests(self, inputs: set[str]) -> None:
        spec = {name: spec for name, spec in self.examples.items() if name in self.stored_for(inputs)}
        try:
            decoded = self._decoded_spec(spec)
        except KeyError as error:  # with labels and weights it works, so it reads one of these
            lacking = ", ".join(sorted(self.targets() - set(spec)))
            raise ConfigurationError(
                f"module: decode_features reads a label or weight ({lacking}), which requests to the exported model do not "
                "have; look for it first, as in: if 'NAME' in features"
            ) from error
        if missing := sorted(inputs - set(decoded)):
            raise ConfigurationError(
                f"module: decode_features does not return {missing[0]!r}, which the model reads, for features without "
                f"labels and weights; these are {', '.join(sorted(spec))}"
            )

    def _decoded_spec(self, examples: FeatureSpec) -> FeatureSpec:
        """Returns the feature spec of what `decode_features` makes of examples."""

        def decode(serialized: tf.Tensor) -> dict[str, Any]:
            return self.functions.decode_batch(tf.io.parse_example(serialized, examples))

        decoded = tf.function(decode, [tf.TensorSpec([None], tf.string)], autograph=False).get_concrete_function()
        self._python_in_decode = python_operations.find(decoded.graph)
        return {name: _feature_of(values) for name, values in decoded.structured_outputs.items()}

    def check_portable(self) -> None:
        """Raises ConfigurationError if `decode_features` cannot run in a server."""
        python_operations.refuse("decode_features", self._python_in_decode)

    def targets(self) -> set[str]:
        """Returns the names of the labels and weights."""
        return {*names_in(self.label), *names_in(self.example_weight)}

    def make_transform_layer(self) -> tf_keras.Model:
        """Makes the layer that applies the transform graph, under any precision policy.

        TFT's layer is a Keras 2 model, whichever Keras version trains. Under training's
        mixed precision it would cast raw floats to a type that the graph does not
        accept. `transform` caches the first layer that it makes, perhaps for the user's
        module and in that precision, so this one comes from a separate
        `TFTransformOutput`.
        """
        assert self._transform_graph is not None, "there is no transform graph"
        policy = tf_keras.mixed_precision.global_policy()
        tf_keras.mixed_precision.set_global_policy("float32")
        try:
            return tft.TFTransformOutput(self._transform_graph).transform_features_layer()
        finally:
            tf_keras.mixed_precision.set_global_policy(policy)

    def _check_is_in_every_example(self, argument: str, name: str) -> None:
        if name not in self.decoded:
            raise ConfigurationError(
                f"{argument}: the examples have no feature {name!r}; they have {', '.join(sorted(self.decoded))}"
            )
        if not isinstance(self.decoded[name], tf.io.FixedLenFeature):
            setting = f"require: [{name}] under data" if name in self.raw else "data.require"
            raise ConfigurationError(
                f"{argument}: not every example has the feature {name!r}; fill the gaps in preprocessing_fn, or leave such "
                f"examples out with {setting}"
            )

    def raw_needed_for(self, names: set[str]) -> FeatureSpec:
        """Returns the raw features that `names` in `examples` are computed from."""
        if self.transform is None:
            return {name: spec for name, spec in self.raw.items() if name in names}
        function = self._transform_fn
        outputs = tf.nest.pack_sequence_as(function.structured_outputs, function.outputs, expand_composites=True)
        needed = _reachable([tensor.op for name in names for tensor in tf.nest.flatten(outputs[name], True)])
        # The function's inputs are its arguments ordered by name, with composite
        # tensors split into their components, followed by its captures.
        arguments: Mapping[str, Any] = function.structured_input_signature[0][0]
        placeholders = iter(function.inputs)
        used: set[str] = set()
        for name in sorted(arguments):
            parts = [next(placeholders) for _ in tf.nest.flatten(arguments[name], expand_composites=True)]
            if any(part.op.name in needed for part in parts):
                used.add(name)
        return {name: spec for name, spec in self.raw.items() if name in used}

    @functools.cached_property
    def _transform_fn(self) -> Any:
        assert self.transform is not None, "there is no transform graph"
        loaded = tf.saved_model.load(self.transform.transform_savedmodel_dir)
        loaded.transform_fn.owner = loaded  # its vocabularies would be gone with it
        return loaded.transform_fn

    def optional(self, names: Collection[str]) -> list[str]:
        """Returns those of `names`, all in `raw`, that an example need not have."""
        required = {feature.name for feature in self._raw_schema.feature if _has_values(feature)}
        return sorted(set(names) - required)


def _reachable(operations: list[tf.Operation]) -> set[str]:
    """Returns the names of `operations` and of those that their values come from."""
    seen: set[str] = set()
    pending = list(operations)
    while pending:
        operation = pending.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            # Not control inputs: a transform graph initializes its vocabularies, and
            # passes each through all of its lookups, before it returns anything.
            pending += [tensor.op for tensor in operation.inputs]
    return seen


def _look_up(names: FeatureNames, example: Mapping[str, Any]) -> Any:
    return example[names] if isinstance(names, str) else {output: example[name] for output, name in names.items()}


def _feature_of(values: Any) -> Any:
    """Returns the `tf.io` feature of a batch's values, or the type of ragged ones.

    A `tf.io.RaggedFeature` has neither all types nor inner dimensions.
    """
    if isinstance(values, tf.SparseTensor):
        return tf.io.VarLenFeature(values.dtype)
    if isinstance(values, tf.RaggedTensor):
        return tf.type_spec_from_value(values)
    return tf.io.FixedLenFeature(values.shape[1:].as_list(), values.dtype)


def _has_values(feature: schema_pb2.Feature) -> bool:
    """Returns True if every example has values of a feature.

    An example that has the feature may have no values of it, as the gap of a CSV file.
    """
    has_some = feature.HasField("shape") or feature.value_count.min >= 1
    return has_some and feature.presence.min_fraction == 1


def _read_schema(path: str | None) -> schema_pb2.Schema:
    if path is None:
        raise ConfigurationError("schema: examples without a transform graph need a schema")
    with tf.io.gfile.GFile(path) as file:
        return text_format.Parse(file.read(), schema_pb2.Schema())

"""Adapts TFMA's extractors: names of outputs, slices by text, and of whole batches.

Examples are sliced by their texts, not by ids of a vocabulary: TFMA slices by
transformed features first, and of a text that the transform has mapped to an id under
the same name, a reader could not tell which text a slice is.

If the label is given by output (`label_keys`), the only output of a model gets its name
back: TFMA drops it, and would then find no predictions for the label.

The slices of a batch are looked up once for all of its examples with equal features.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.extractors import slice_key_extractor, unbatch_extractor
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.utils import util

from tfx_distribute.components.evaluator import batches

_FEATURES = (constants.FEATURES_KEY, constants.TRANSFORMED_FEATURES_KEY)


def custom_extractors(eval_shared_model: Any, eval_config: config_pb2.EvalConfig, tensor_adapter_config: Any) -> list[Any]:
    """Returns TFMA's extractors, with those that this module adds.

    The Evaluator's executor calls this function of its module, with the arguments of
    `tfma.default_extractors`. If `batches.can_batch` takes the config, the last one
    slices batches, for an evaluation within `batches.computing`.
    """
    extractors = tfma.default_extractors(
        eval_shared_model=eval_shared_model, eval_config=eval_config, tensor_adapter_config=tensor_adapter_config
    )
    stages = [extractor.stage_name for extractor in extractors]
    unbatch = stages.index(unbatch_extractor.UNBATCH_EXTRACTOR_STAGE_NAME)
    slicing = slice_key_extractor.SLICE_KEY_EXTRACTOR_STAGE_NAME  # the stage after which TFMA's evaluator runs
    outputs = tfma.extractors.Extractor("NamesOfOutputs", beam.Map(name_outputs, config=eval_config))
    if batches.can_batch(eval_config):
        return [*extractors[:unbatch], outputs, tfma.extractors.Extractor(slicing, beam.ParDo(_SliceBatches(eval_config)))]
    names = find_sliced_texts(eval_config)
    texts = tfma.extractors.Extractor("TextsOfSlices", beam.Map(use_texts, names=names))
    place = stages.index(slicing)
    return [*extractors[:unbatch], outputs, *extractors[unbatch:place], texts, *extractors[place:]]


def name_outputs(extracts: dict[str, Any], config: config_pb2.EvalConfig) -> dict[str, Any]:
    """Gives a model's only output the name that `label_keys` has for it."""
    outputs = list(config.model_specs[0].label_keys)
    if len(outputs) != 1:
        return extracts

    def name(predictions: Any) -> Any:
        return predictions if isinstance(predictions, Mapping) else {outputs[0]: predictions}

    predictions = extracts[constants.PREDICTIONS_KEY]
    has_baseline = len(config.model_specs) > 1
    named = {model: name(value) for model, value in predictions.items()} if has_baseline else name(predictions)
    return {**extracts, constants.PREDICTIONS_KEY: named}


def find_sliced_texts(config: config_pb2.EvalConfig) -> set[str]:
    """Returns the features that are sliced by their own texts.

    Features with a given value in a slice stay as they are, since it may be an id.
    """
    given = {name for spec in config.slicing_specs for name in spec.feature_values}
    return {name for spec in config.slicing_specs for name in spec.feature_keys} - given


def use_texts(extracts: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Returns an example's extracts with its own texts among transformed features.

    The example is sliced by the features `names`.
    """
    raw, transformed = extracts[constants.FEATURES_KEY], extracts.get(constants.TRANSFORMED_FEATURES_KEY) or {}
    texts = {name: raw[name] for name in names if name in raw and raw[name].dtype.kind in "OS" and raw[name].size == 1}

    def replace_ids(features: dict[str, Any]) -> dict[str, Any]:
        ids = {name for name in texts if name in features and features[name].dtype.kind == "i"}
        return {**features, **{name: texts[name] for name in ids}}

    has_baseline = any(isinstance(value, dict) for value in transformed.values())
    by_model = {model: replace_ids(features) for model, features in transformed.items()} if has_baseline else None
    return {**extracts, constants.TRANSFORMED_FEATURES_KEY: by_model or replace_ids(transformed)}


class _SliceBatches(beam.DoFn):
    def __init__(self, config: config_pb2.EvalConfig):
        specs = config.slicing_specs or [config_pb2.SlicingSpec()]
        self._slices = [slicer_lib.SingleSliceSpec(spec=spec) for spec in specs]
        self._names = {name for spec in specs for name in (*spec.feature_keys, *spec.feature_values)}
        self._names_with_texts = find_sliced_texts(config)
        self._find_slices = slice_key_extractor.ExtractSliceKeysFn(config, materialize=False)

    def process(self, extracts: dict[str, Any]) -> Iterator[dict[str, Any]]:
        batch = batches.WholeBatch(extracts)
        rows_of_slices: dict[Any, list[np.ndarray]] = {}
        for example, rows in group_by_features(extracts, self._names):
            example = use_texts(example, self._names_with_texts)
            (with_slices,) = self._find_slices.process(example, self._slices)
            for slice_key in with_slices[constants.SLICE_KEY_TYPES_KEY]:
                rows_of_slices.setdefault(slice_key, []).append(rows)
        for slice_key, parts in rows_of_slices.items():
            yield batches.Part(batch, np.concatenate(parts)).element(slice_key)


def group_by_features(extracts: dict[str, Any], names: Collection[str]) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Yields features, and the rows of the examples with these values of `names`."""
    features = {key: _select(extracts[key] or {}, names) for key in _FEATURES if key in extracts}
    columns = batches.leaves(features)
    if not columns:  # there are no such features
        yield {constants.FEATURES_KEY: {}}, np.arange(util.batch_size(extracts[constants.PREDICTIONS_KEY]))
        return
    examples = None if all(map(_is_table, columns)) else util.split_extracts(features)
    values = map(_to_text, examples) if examples else map(str, zip(*(column.tolist() for column in columns), strict=True))
    groups: dict[str, list[int]] = {}
    for row, text in enumerate(values):
        groups.setdefault(text, []).append(row)
    for rows in map(np.array, groups.values()):
        (example,) = [examples[rows[0]]] if examples else util.split_extracts(batches.take(features, rows[:1]))
        yield {constants.FEATURES_KEY: {}, **example}, rows


def _is_table(value: Any) -> bool:
    """Returns True for an array of numbers or texts; one of objects may have arrays."""
    return isinstance(value, np.ndarray) and (value.ndim > 1 or value.dtype.kind != "O")


def _select(features: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Returns the named features, of each model where there is a baseline."""
    return {
        name: _select(value, names) if isinstance(value, dict) else value
        for name, value in features.items()
        if name in names or isinstance(value, dict)
    }


def _to_text(tree: Any) -> str:
    """Returns the same text for the same values; those of arrays in full."""
    if isinstance(tree, dict):
        return str([_to_text(value) for value in tree.values()])
    return str(tree.tolist() if isinstance(tree, np.ndarray) else tree)

"""Slices the examples of an evaluation a batch at a time; see `batches`.

The slices of an example are those that TFMA finds, with texts in place of ids as in
`extractors`. They are looked up once for all examples of a batch with equal features.
"""

from collections.abc import Collection, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.extractors import slice_key_extractor
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.utils import util

from tfx_distribute.components.evaluator import batches, extractors

_FEATURES = (constants.FEATURES_KEY, constants.TRANSFORMED_FEATURES_KEY)


def custom_extractors(eval_shared_model: Any, eval_config: config_pb2.EvalConfig, tensor_adapter_config: Any) -> list[Any]:
    """Returns TFMA's extractors up to the predictions, and one that slices batches.

    The Evaluator's executor calls this function of its module, with the arguments of
    `tfma.default_extractors` and a config that `batches.can_batch` takes.
    """
    defaults = tfma.default_extractors(
        eval_shared_model=eval_shared_model, eval_config=eval_config, tensor_adapter_config=tensor_adapter_config
    )
    batched, _ = extractors.divide(defaults, eval_config)
    # The name of TFMA's stage, after which its evaluator runs.
    name = slice_key_extractor.SLICE_KEY_EXTRACTOR_STAGE_NAME
    return [*batched, tfma.extractors.Extractor(name, beam.ParDo(_SliceBatches(eval_config)))]


class _SliceBatches(beam.DoFn):
    """Divides a batch into its slices."""

    def __init__(self, config: config_pb2.EvalConfig):
        specs = config.slicing_specs or [config_pb2.SlicingSpec()]
        self._slices = [slicer_lib.SingleSliceSpec(spec=spec) for spec in specs]
        self._names = {name for spec in specs for name in (*spec.feature_keys, *spec.feature_values)}
        self._names_with_texts = extractors.find_sliced_texts(config)
        self._find_slices = slice_key_extractor.ExtractSliceKeysFn(config, materialize=False)

    def process(self, extracts: dict[str, Any]) -> Iterator[dict[str, Any]]:
        batch = batches.WholeBatch(extracts)
        rows_of_slices: dict[Any, list[np.ndarray]] = {}
        for example, rows in group_by_features(extracts, self._names):
            example = extractors.use_texts(example, self._names_with_texts)
            (with_slices,) = self._find_slices.process(example, self._slices)
            for slice_key in with_slices[constants.SLICE_KEY_TYPES_KEY]:
                rows_of_slices.setdefault(slice_key, []).append(rows)
        for slice_key, parts in rows_of_slices.items():
            yield batches.Part(batch, np.concatenate(parts)).element(slice_key)


def group_by_features(extracts: dict[str, Any], names: Collection[str]) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Groups the examples of a batch whose features `names` are equal.

    Yields:
      The extracts of one of the examples with these features only, and the rows of all
      of the group.
    """
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

"""Has TFMA's evaluation take the examples of a slice a batch at a time.

TFMA calls each metric for each example and each of its slices, in Python. Here an
element of its pipeline is all examples of one slice in a batch instead, and each
computation of a metric gets them in one of two ways:

- Those that `sums` knows add the batch at once.
- All others get the examples one by one, as they do without this module.

Everything else is TFMA's: which computations a metric has, how it is derived from them,
changes against the baseline, validation and files.
"""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from absl import logging
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.proto import config_pb2  # TFMA 0.52 has it as `tfma.` only where TFX is imported
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.utils import util

from tfx_distribute.components.evaluator import sums

_PART = "part_of_batch"  # key of a `Part` in TFMA's extracts
_INPUTS = (constants.LABELS_KEY, constants.PREDICTIONS_KEY, constants.EXAMPLE_WEIGHTS_KEY)


def can_batch(config: config_pb2.EvalConfig) -> bool:
    """Returns True if an evaluation has nothing that TFMA needs single examples for."""
    options = config.options
    # Metrics that a Keras model was compiled with do not come from `to_computations`.
    has_others = not options.HasField("include_default_metrics") or options.include_default_metrics.value
    model_types = (constants.TF_GENERIC,) if has_others else (constants.TF_GENERIC, "")
    return not (
        options.compute_confidence_intervals.value
        or options.min_slice_size.value > 1  # TFMA would count batches
        or config.cross_slicing_specs
        or any(spec.slice_keys_sql for spec in config.slicing_specs)
        or any(spec.query_key for spec in config.metrics_specs)
        or not all(spec.model_type in model_types and spec.signature_name != "eval" for spec in config.model_specs)
    )


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """Lets evaluations that are built within the block take parts of batches.

    TFMA has no option for it. An evaluation whose metrics were not adapted would fail:
    the elements have no labels or predictions where it looks for them.
    """
    to_computations = metric_specs.to_computations
    adapted = mock.patch.object(metric_specs, "to_computations", lambda *args, **kw: adapt(to_computations(*args, **kw)))
    with adapted:
        yield


def adapt(computations: list[Any]) -> list[Any]:
    """Returns TFMA's computations with parts of batches as their inputs.

    Those that derive a metric from others stay the same.
    """
    adapted, slow = [], set()
    for computation in computations:
        if not isinstance(computation, metric_types.MetricComputation):
            adapted.append(computation)
        elif sums.can_add(computation.combiner):
            preprocessors = [_BatchPreprocessor(_identity(computation))]
            combiner = copy.copy(computation.combiner)
            combiner.add_input = functools.partial(_add_input, combiner)
            adapted.append(tfma.metrics.MetricComputation(computation.keys, preprocessors, combiner))
        else:
            slow |= {key.name.partition(":")[0] for key in computation.keys}
            adapted.append(_by_example(computation))
    if slow:
        logging.info("Computed one example at a time: %s", ", ".join(sorted(slow)))
    return adapted


@dataclass
class WholeBatch:
    """A batch of examples with predictions: TFMA's extracts, with a row for each."""

    extracts: dict[str, Any]

    @functools.cached_property
    def examples(self) -> list[dict[str, Any]]:
        """The extracts of each example."""
        without_records = {key: value for key, value in self.extracts.items() if key != constants.ARROW_RECORD_BATCH_KEY}
        return list(util.split_extracts(without_records))


@dataclass
class Part:
    """The examples of a batch that are in one slice."""

    batch: WholeBatch
    rows: np.ndarray

    def element(self, slice_key: tuple[Any, ...]) -> dict[str, Any]:
        """Returns an element of TFMA's pipeline for a slice."""
        return {constants.SLICE_KEY_TYPES_KEY: slicer_lib.slice_keys_to_numpy_array([slice_key]), _PART: self}

    @property
    def examples(self) -> list[dict[str, Any]]:
        """The extracts of each example."""
        return [self.batch.examples[row] for row in self.rows]

    @functools.cached_property
    def inputs(self) -> "sums.Batch | None":
        """Labels, predictions and weights; None if not all of them are plain arrays."""
        extracts = self.batch.extracts
        inputs = {key: _two_dimensional(extracts[key]) for key in _INPUTS if key in extracts}
        is_plain = all(isinstance(value, np.ndarray) for value in leaves(inputs))
        has_numbers = is_plain and all(value.dtype.kind in "biuf" for value in leaves(inputs.get(constants.LABELS_KEY)))
        return sums.Batch(take(inputs, self.rows)) if has_numbers else None


class _BatchPreprocessor(tfma.metrics.Preprocessor):
    """Gets a part's inputs at once, or of each example if they are not plain arrays."""

    def process(self, extracts: dict[str, Any]) -> Iterator[Any]:
        part = extracts[_PART]
        if part.inputs is not None:
            yield part.inputs
        else:
            yield from map(tfma.metrics.StandardMetricInputs, part.examples)


class _ExamplesPreprocessor(tfma.metrics.Preprocessor):
    def process(self, extracts: dict[str, Any]) -> Iterator[Any]:
        yield from extracts[_PART].examples


class _StandardPreprocessor(tfma.metrics.Preprocessor):
    """Wraps an example's extracts as TFMA does by default."""

    def process(self, extracts: dict[str, Any]) -> Iterator[Any]:
        yield tfma.metrics.StandardMetricInputs(extracts)


def _add_input(combiner: beam.CombineFn, accumulator: Any, inputs: Any) -> Any:
    """Adds a batch at once where that is possible; replaces the combiner's method."""
    add_example = functools.partial(type(combiner).add_input, combiner)
    if not isinstance(inputs, sums.Batch):
        return add_example(accumulator, inputs)
    result = sums.add(combiner, accumulator, inputs)
    if result is not NotImplemented:
        return result
    examples = map(tfma.metrics.StandardMetricInputs, util.split_extracts(inputs.extracts))
    return functools.reduce(add_example, examples, accumulator)


def _by_example(computation: Any) -> Any:
    preprocessors = computation.preprocessors or [metric_types.StandardMetricInputsPreprocessor()]
    # Like TFMA, which wraps no extracts for a combiner with other preprocessors.
    is_standard = len(preprocessors) == 1 and type(preprocessors[0]) is metric_types.StandardMetricInputsPreprocessor
    last = [_StandardPreprocessor()] if is_standard else []
    preprocessors = [_ExamplesPreprocessor(_identity(computation)), *preprocessors, *last]
    return tfma.metrics.MetricComputation(computation.keys, preprocessors, computation.combiner)


def _identity(computation: Any) -> str:
    """Names a preprocessor by what TFMA recognizes equal computations by."""
    return " ".join([type(computation.combiner).__name__, *(each.preprocessor_id for each in computation.preprocessors)])


def _map(function: Callable[[Any], Any], tree: Any) -> Any:
    return {key: _map(function, value) for key, value in tree.items()} if isinstance(tree, Mapping) else function(tree)


def leaves(tree: Any) -> list[Any]:
    """Returns the values of a dictionary of dictionaries that are not None."""
    if isinstance(tree, Mapping):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    return [] if tree is None else [tree]


def _two_dimensional(tree: Any) -> Any:
    """Gives one number for each example the shape that TFMA gives it, `[1]`."""
    return _map(lambda value: value[:, np.newaxis] if getattr(value, "ndim", 0) == 1 else value, tree)


def take(tree: Any, rows: np.ndarray) -> Any:
    """Returns some rows of each array in a dictionary of dictionaries."""
    return _map(lambda value: None if value is None else value[rows], tree)

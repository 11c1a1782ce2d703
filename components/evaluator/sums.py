"""Adds a batch of examples to accumulators of TFMA's combiners: pure NumPy.

Each function adds what the combiner's `add_input` adds up for the examples one by one,
and returns the accumulator. It returns NotImplemented for batches that it is not made
for, such as labels between 0 and 1; TFMA then adds them, or raises its error. Those of
`_OF_PAIRS` get a label, a prediction and a weight for each class of each example.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.contrib.aggregates import binary_confusion_matrices as matrices_lib
from tensorflow_model_analysis.metrics import calibration_histogram, metric_util, multi_class_confusion_matrix_metrics
from tensorflow_model_analysis.utils import util


class Batch(tfma.metrics.StandardMetricInputs):
    """Inputs of a metric with a row for each of several examples.

    All values are arrays of at least two dimensions.
    """


def can_add(combiner: Any) -> bool:
    """Returns True if batches can be added to a combiner's accumulators."""
    key = getattr(combiner, "_key", None) or getattr(combiner, "_metric_key", None)
    is_of_top_k = bool(key and key.sub_key and key.sub_key.class_id is None)
    # Of these, only Keras metrics have a `_sub_key`.
    options = ("_aggregation_type", "_class_weights", "_sub_key", "_example_id_key")
    has_options = is_of_top_k or any(getattr(combiner, option, None) for option in options)
    plain = metric_util.to_label_prediction_example_weight
    is_plain = getattr(combiner, "_extract_label_prediction_and_weight", plain) is plain
    return type(combiner).__name__ in {**_OF_PAIRS, **_OF_BATCHES} and is_plain and not has_options


def add(combiner: Any, accumulator: Any, batch: Batch) -> Any:
    """Adds a batch to an accumulator of a combiner for which `can_add` returns True."""
    name = type(combiner).__name__
    if name in _OF_BATCHES:
        return _OF_BATCHES[name](combiner, accumulator, batch)
    pairs = _pairs(combiner, batch)
    return NotImplemented if pairs is None else _OF_PAIRS[name](combiner, accumulator, *pairs)


def _add_to_histogram(combiner: Any, accumulator: dict[int, Any], *pairs: np.ndarray) -> Any:
    labels, predictions, weights = (values.astype(np.float64) for values in pairs)
    position = ((predictions if combiner._prediction_based_bucketing else labels) - combiner._left) / combiner._range
    if np.isnan(position).any():
        return NotImplemented
    last = combiner._num_buckets + 1
    buckets, index = np.unique(np.clip(position * combiner._num_buckets + 1, 0, last).astype(int), return_inverse=True)
    totals = [np.bincount(index, values).tolist() for values in (labels * weights, predictions * weights, weights)]
    for bucket in map(calibration_histogram.Bucket, buckets.tolist(), *totals):
        if bucket.bucket_id in accumulator:
            accumulator[bucket.bucket_id].merge(bucket)
        else:
            accumulator[bucket.bucket_id] = bucket
    return accumulator


def _add_to_matrices(combiner: Any, accumulator: Any, *pairs: np.ndarray) -> Any:
    labels, predictions, weights = (values.astype(np.float64) for values in pairs)
    matrices = combiner._binary_confusion_matrices
    entries = matrices.extract_output({})  # an empty one for each threshold
    thresholds = np.array(list(entries))[:, np.newaxis]
    positive = labels == 1 if combiner._enable_fractional_labels else labels > thresholds
    predicted = predictions > thresholds
    cells = (positive & predicted, ~positive & ~predicted, ~positive & predicted, positive & ~predicted)
    totals = ((cell @ weights).tolist() for cell in cells)
    for (threshold, entry), values in zip(entries.items(), zip(*totals, strict=True), strict=True):
        entries[threshold] = entry._replace(matrix=matrices_lib.Matrix(*values))
    return matrices.merge_accumulators([accumulator, entries])


def _add_to_means(combiner: Any, accumulator: Any, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> Any:
    accumulator.total_weighted_labels += float(labels @ weights)
    accumulator.total_weighted_predictions += float(predictions @ weights)
    accumulator.total_weighted_examples += float(weights.sum())
    return accumulator


def _add_errors(combiner: Any, accumulator: Any, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> Any:
    errors = _ERRORS[type(combiner).__name__](labels, predictions).astype(np.float64)
    counts = ~np.isnan(errors)
    accumulator.total_regression_error += float(errors[counts] @ weights[counts])
    accumulator.total_example_weights += float(weights[counts].sum())
    return accumulator


def _add_to_keras_metrics(combiner: Any, accumulator: Any, batch: Batch) -> Any:
    """Adds a row for each example, which TFMA gives to the Keras metric in batches."""
    outputs = [_read(combiner, batch, combiner._model_name, name) for name in combiner._output_names]
    if any(values.ndim != 2 for arrays in outputs for values in arrays):
        return NotImplemented
    for number, (labels, predictions, weights) in enumerate(outputs):
        rows = zip(labels, predictions, np.broadcast_to(weights, (len(labels), weights.shape[1])), strict=True)
        for row in rows:
            accumulator.add_input(number, *row)
    if accumulator.should_flush():
        combiner._process_batch(accumulator)
    return accumulator


def _add_to_count(combiner: Any, accumulator: float, batch: Batch) -> Any:
    weights = batch.get_example_weights(combiner._model_name or None, combiner._output_name or None)
    if not combiner._example_weighted or weights is None:
        return accumulator + util.batch_size(batch.extracts)
    return accumulator + float(weights.sum(dtype=np.float64)) if isinstance(weights, np.ndarray) else NotImplemented


def _add_to_class_matrix(combiner: Any, accumulator: Any, batch: Batch) -> Any:
    labels, predictions, weights = _read(combiner, batch, combiner._key.model_name, combiner._key.output_name)
    shapes = {labels.ndim, predictions.ndim, weights.ndim}
    if len(combiner._thresholds) > 1 or shapes != {2} or weights.shape[1] > 1 or predictions.shape[1] == 1:
        return NotImplemented
    (threshold,) = combiner._thresholds
    actual = labels[:, 0].astype(int) if labels.shape[1] == 1 else labels.argmax(axis=1)
    predicted = predictions.argmax(axis=1)
    best = np.take_along_axis(predictions, predicted[:, np.newaxis], axis=1)[:, 0]
    predicted = np.where(best <= threshold, tfma.metrics.NO_PREDICTED_CLASS_ID, predicted)
    cells, index = np.unique(np.stack([actual, predicted], axis=1), axis=0, return_inverse=True)
    totals = np.bincount(index.ravel(), np.broadcast_to(weights[:, 0], actual.shape).astype(np.float64))
    entries = accumulator.setdefault(threshold, {})
    for cell, total in zip(cells.tolist(), totals.tolist(), strict=True):
        key = multi_class_confusion_matrix_metrics.MatrixEntryKey(*cell)
        entries[key] = entries.get(key, 0.0) + total
    return accumulator


def _read(combiner: Any, batch: Batch, model: str, output: str, sub_key: Any = None) -> tuple[np.ndarray, ...]:
    """Returns labels, predictions and weights, which may be one for all examples."""
    # TFMA finds a model, its output and so on in a batch as it does in an example.
    values = tfma.metrics.to_label_prediction_example_weight(
        batch,
        eval_config=combiner._eval_config,
        model_name=model,
        output_name=output,
        sub_key=sub_key,
        example_weighted=combiner._example_weighted,
        flatten=False,
        squeeze=False,
        allow_none=True,
    )
    labels, predictions, weights = next(iter(values))
    return labels, predictions, weights.reshape(1, 1) if weights.ndim == 1 else weights


def _pairs(combiner: Any, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Returns labels, predictions and weights; None if they do not pair up.

    TFMA makes two pairs of a label between 0 and 1, which this does not.
    """
    key = getattr(combiner, "_key", None) or combiner._metric_key
    labels, predictions, weights = _read(combiner, batch, key.model_name, key.output_name, key.sub_key)
    if predictions.ndim != 2 or labels.ndim != 2 or weights.ndim != 2 or weights.shape[1] not in (1, predictions.shape[1]):
        return None
    if labels.shape[1] == 1 < predictions.shape[1]:
        labels = metric_util.one_hot(labels, predictions)
    if labels.shape != predictions.shape:
        return None
    weights = np.broadcast_to(weights, predictions.shape).astype(np.float64)
    kept = np.full(labels.shape, True)
    if any(getattr(combiner, option, False) for option in ("_fractional_labels", "_enable_fractional_labels")):
        if not ((labels == 0) | (labels == 1)).all():
            return None
        kept = weights != 0
    return labels[kept], predictions[kept], weights[kept]


# Errors of each example; those that are NaN do not count.
_ERRORS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "_MeanAbsoluteErrorCombiner": lambda labels, predictions: np.abs(labels - predictions),
    "_MeanSquaredErrorCombiner": lambda labels, predictions: (labels - predictions).astype(np.float64) ** 2,
}
# By name: a version of TFMA without one of these classes adds its examples one by one.
_OF_PAIRS: dict[str, Callable[..., Any]] = {
    "_CalibrationHistogramCombiner": _add_to_histogram,
    "_BinaryConfusionMatrixCombiner": _add_to_matrices,
    "_WeightedLabelsPredictionsExamplesCombiner": _add_to_means,
    **dict.fromkeys(_ERRORS, _add_errors),
}
_OF_BATCHES: dict[str, Callable[[Any, Any, Batch], Any]] = {
    "_CompilableMetricsCombiner": _add_to_keras_metrics,
    "_ExampleCountCombiner": _add_to_count,
    "_MultiClassConfusionMatrixCombiner": _add_to_class_matrix,
}

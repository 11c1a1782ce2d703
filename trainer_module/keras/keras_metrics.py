"""Reads and saves Keras metrics, in Keras 2 and Keras 3."""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tfx_distribute.trainer_module.keras import autograph, keras_models

# A value, and a function that reads it from its metric again.
Results: TypeAlias = list[tuple[Any, Callable[[], Any]]]


def flatten(results: Mapping[str, Any]) -> dict[str, Any]:
    """Puts the values of a metric that has a dictionary of them in its place.

    Keras does the same: `{"loss": 0.5, "both": {"low": 0.1, "high": 0.9}}` becomes
    `{"loss": 0.5, "low": 0.1, "high": 0.9}`.
    """
    flat: dict[str, Any] = {}
    for name, value in results.items():
        flat |= flatten(value) if isinstance(value, Mapping) else {name: value}
    return flat


def as_floats(metrics: dict[str, Any]) -> dict[str, float]:
    """Converts the values of metrics, tensors or numbers, to floats.

    A metric with several values, such as one for each class, becomes several metrics:
    `{"recall": [0.5, 1.0]}` becomes `{"recall_0": 0.5, "recall_1": 1.0}`.
    """
    floats: dict[str, float] = {}
    for name, value in metrics.items():
        values = tf.reshape(tf.cast(value, tf.float64), [-1]).numpy()
        names = [name] if len(values) == 1 else [f"{name}_{index}" for index in range(len(values))]
        floats.update(zip(names, map(float, values), strict=True))
    return floats


@contextlib.contextmanager
def recording_results(metrics: Iterable[tf.keras.metrics.Metric], results: Results) -> Iterator[None]:
    """Adds each value that `result()` of a metric returns within the block to a list.

    A model's own step may log the result of a metric under another name, such as
    `loss`. A mean of the logged values would be a mean of running means, so the metric
    itself has to be found.

    If it returns a dictionary, as that of Keras 3 for all compiled metrics does, the
    values in it are added. Keras 3 lists some metrics twice. `results` is empty after
    the block.
    """
    unique = list({id(metric): metric for metric in metrics}.values())
    own = [vars(metric).get("result") for metric in unique]  # Keras 2 sets it for each object
    for metric in unique:
        vars(metric)["result"] = _recording_result(metric, metric.result, results)
    try:
        yield
    finally:
        results.clear()
        for metric, result in zip(unique, own, strict=True):
            if result is None:
                del vars(metric)["result"]
            else:
                vars(metric)["result"] = result


def _recording_result(metric: tf.keras.metrics.Metric, result: Callable[..., Any], results: Results) -> Callable[..., Any]:
    def record(*arguments: Any, **named: Any) -> Any:
        value = autograph.converted(result)(*arguments, **named)
        if not (arguments or named):  # the loop calls it without any
            parts = flatten(value) if isinstance(value, Mapping) else {None: value}
            results.extend((part, functools.partial(_read, metric, name)) for name, part in parts.items())
        return value

    return record


def _read(metric: tf.keras.metrics.Metric, name: str | None) -> Any:
    """Returns the result of a metric, or one of its results."""
    value = autograph.converted(metric.result)()
    return value if name is None else flatten(value)[name]


def state(metrics: Sequence[tf.keras.metrics.Metric]) -> list[Any]:
    """Returns the state of metrics as a checkpoint can save it.

    `tf.train.Checkpoint` does not save the variables of a Keras 3 metric object.
    """
    _restore_sums_exactly()
    if keras_models.is_keras_3():
        return [variable.value for metric in metrics for variable in metric.variables]
    return list(metrics)


@functools.cache
def _restore_sums_exactly() -> None:
    """Makes TensorFlow restore variables that replicas sum to exactly the saved sum.

    It gives each replica an equal part of the sum, which it rounds down in a variable
    of integers, such as the confusion matrix of Keras 3's `MeanIoU`. There is no public
    way to change this (TensorFlow 2.16 and 2.21).
    """
    values_util: Any = importlib.import_module("tensorflow.python.distribute.values_util")
    restore = values_util.get_on_read_restore_ops

    def restore_exactly(variable: Any, value: tf.Tensor, aggregation: tf.VariableAggregation) -> Any:
        if aggregation != tf.VariableAggregation.SUM:
            return restore(variable, value, aggregation)
        has_first = variable.distribute_strategy.extended._get_replica_id_in_sync_group(0) == 0
        parts = [value if has_first and replica == 0 else tf.zeros_like(value) for replica in range(len(variable.values))]
        assign = values_util.assign_on_device
        return tf.group(*(assign(each.device, each, part) for each, part in zip(variable.values, parts, strict=True)))

    values_util.get_on_read_restore_ops = restore_exactly

"""Records the results of metrics while a model's own step is traced.

A step may log the result of a metric under another name, such as `loss`. A mean of the
logged values would be a mean of running means, so the metric itself has to be found.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from tfx_distribute.trainer_module.keras import keras_metrics

# A value, and a function that reads it from its metric again.
Results: TypeAlias = list[tuple[Any, Callable[[], Any]]]


@contextlib.contextmanager
def recording(metrics: Iterable[tf.keras.metrics.Metric], results: Results) -> Iterator[None]:
    """Adds each value that `result()` of a metric returns within the block to a list.

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
        value = result(*arguments, **named)
        if not (arguments or named):  # the loop calls it without any
            parts = keras_metrics.flatten(value) if isinstance(value, Mapping) else {None: value}
            results.extend((part, functools.partial(_read, metric, name)) for name, part in parts.items())
        return value

    return record


def _read(metric: tf.keras.metrics.Metric, name: str | None) -> Any:
    """Returns the result of a metric, or one of its results."""
    value = metric.result()
    return value if name is None else keras_metrics.flatten(value)[name]

"""Records the results of metrics while a model's own step is traced.

A step may log the result of a metric under another name, such as `loss`. A mean of the
logged values would be a mean of running means, so the metric itself has to be found.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf

Results: TypeAlias = list[tuple[Any, tf.keras.metrics.Metric]]


@contextlib.contextmanager
def recording(metrics: Iterable[tf.keras.metrics.Metric], results: Results) -> Iterator[None]:
    """Adds each value that `result()` of a metric returns within the block to a list.

    ```python
    results = []
    with metric_results.recording(model.metrics, results):
        logs = model.train_step(batch)
        of_loss = [metric for value, metric in results if value is logs["loss"]]
    ```

    Args:
      metrics: The metrics. Keras 3 lists some twice.
      results: The list of values, each with its metric; empty after the block.
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
            results.append((value, metric))
        return value

    return record

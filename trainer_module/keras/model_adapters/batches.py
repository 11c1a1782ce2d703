"""Counts the examples of a batch, and makes of it what `fit` passes to a step."""

from typing import Any

import tensorflow as tf


def as_fit_passes(batch: Any) -> Any:
    """Returns a batch as `fit` passes it to a model's own steps."""
    return batch if len(batch) > 1 else batch[0]


def size(features: Any, label: Any = None, *weights: Any) -> tf.Tensor:
    """Returns the number of examples in a batch, an int32 or int64 scalar."""
    first = tf.nest.flatten(features if label is None else label)[0]
    return first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]

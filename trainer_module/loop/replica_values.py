"""Finds variables that training steps set differently on each replica.

A variable without an aggregation, such as a moving average in a layer of the user's,
is set on each replica from its part of the batch. Nothing else notices.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf


def find_differing(
    saved: Iterable[Any], strategy: tf.distribute.Strategy, gather: Callable[[Sequence[float]], list[list[float]]]
) -> list[str]:
    """Returns the names of variables whose values differ between replicas.

    `saved` is from `saved_objects.find`. Generators of random numbers are left out:
    they are meant to differ. All processes have to call this together; `gather` is
    `Peers.gather`.
    """
    saved = list(saved)
    generators = [each for each in saved if isinstance(each, tf.random.Generator)]
    left_out = {id(each.state) for each in generators}
    variables = [each for each in saved if isinstance(each, tf.Variable) and id(each) not in left_out and _is_mirrored(each)]
    if not variables:
        return []
    sums = [[float(tf.reduce_sum(part)) for part in strategy.experimental_local_results(each)] for each in variables]
    rows = gather([value for parts in sums for value in (min(parts), max(parts))])
    ranges = list(zip(*rows, strict=True))
    return [
        variable.name.partition(":")[0]
        for index, variable in enumerate(variables)
        if max(ranges[2 * index + 1]) > min(ranges[2 * index])
    ]


def _is_mirrored(variable: tf.Variable) -> bool:
    """Returns True if each replica has a value that it may set by itself."""
    is_number = variable.dtype.is_floating or variable.dtype.is_integer
    has_values = getattr(variable, "values", ()) and variable.synchronization != tf.VariableSynchronization.ON_READ
    return bool(is_number and has_values and not variable.trainable and variable.aggregation == tf.VariableAggregation.NONE)

"""Names variables that training steps set differently on each replica.

A variable without an aggregation, such as a moving average in a layer of the user's,
is set on each replica from its part of the batch. Nothing else notices.
"""

from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.keras import keras_models
from tfx_distribute.trainer_module.loop.peers import Peers


def describe_differing(saved: list[Any], strategy: tf.distribute.Strategy, peers: Peers) -> str:
    """Describes variables whose values differ between replicas; empty without any.

    `saved` is from `saved_objects.find`. Generators of random numbers are left out:
    they are meant to differ. All processes have to call this together.
    """
    generators = [each for each in saved if isinstance(each, tf.random.Generator)]
    left_out = {id(each.state) for each in generators}
    variables = [each for each in saved if isinstance(each, tf.Variable) and id(each) not in left_out and _is_mirrored(each)]
    if not variables:
        return ""
    sums = [[float(tf.reduce_sum(part)) for part in strategy.experimental_local_results(each)] for each in variables]
    rows = peers.gather([value for parts in sums for value in (min(parts), max(parts))])
    ranges = list(zip(*rows, strict=True))
    names = [
        variable.name.partition(":")[0]
        for index, variable in enumerate(variables)
        if max(ranges[2 * index + 1]) > min(ranges[2 * index])
    ]
    if not names:
        return ""
    mean = "'mean' (BatchNormalization: synchronized=True)" if keras_models.is_keras_3() else "tf.VariableAggregation.MEAN"
    return (
        f"module: the steps set {', '.join(names)} differently on each replica, and only the first one's is exported; write "
        f"aggregation={mean} where the variable is made"
    )


def _is_mirrored(variable: tf.Variable) -> bool:
    """Returns True if each replica has a value that it may set by itself."""
    is_number = variable.dtype.is_floating or variable.dtype.is_integer
    has_values = getattr(variable, "values", ()) and variable.synchronization != tf.VariableSynchronization.ON_READ
    return bool(is_number and has_values and not variable.trainable and variable.aggregation == tf.VariableAggregation.NONE)

"""Lets the processes of a training that take steps together communicate."""

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.keras import keras_models


class Peers:
    """The processes that take each step together with this one.

    Only `multi_worker_mirrored` has some; elsewhere, this process is alone. All of them
    have to call the same methods in the same order.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.exist = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self._strategy = strategy

    def agree(self, *values: float) -> list[float]:
        """Returns the means of numbers or booleans over all processes.

        Use it wherever all processes have to make the same decision, because the result
        is the same in each. TensorFlow identifies a collective operation by its place
        in the graph, including the round of a loop: processes that divided the same
        steps into calls of different length would wait for each other forever.
        """
        return [sum(column) / len(column) for column in zip(*self.gather(values), strict=True)]

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Returns the numbers of all processes, a list for each of their replicas.

        Each process has equally many.
        """
        if not self.exist:
            return [list(values)]
        row = tf.constant([[float(value) for value in values]], tf.float64)
        return [list(map(float, each)) for each in self._gather(row).numpy()]

    def barrier(self) -> None:
        """Waits for the others, to which an early exit looks like a crash."""
        self.agree(0)
        # The others may still be fetching their part of the first meeting from this
        # process. One that reaches the second has finished the first. The second may
        # fail, because the others may have finished it and exited.
        with contextlib.suppress(tf.errors.OpError):
            self.agree(0)

    @tf.function(autograph=False)
    def _gather(self, values: tf.Tensor) -> tf.Tensor:
        # tf.identity: collective operations need a value that has a device.
        def gather(row: tf.Tensor) -> tf.Tensor:
            return tf.distribute.get_replica_context().all_gather(tf.identity(row), axis=0)

        return self._strategy.experimental_local_results(self._strategy.run(gather, args=(values,)))[0]


def describe_differing(saved: list[Any], strategy: tf.distribute.Strategy, peers: Peers) -> str:
    """Describes variables whose values differ between replicas; empty without any.

    A variable without an aggregation, such as a moving average in a layer of the
    user's, is set on each replica from its part of the batch. Nothing else notices.
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

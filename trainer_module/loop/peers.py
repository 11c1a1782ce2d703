"""Lets the processes of a training that take steps together communicate."""

import contextlib
from collections.abc import Sequence

import tensorflow as tf


class Peers:
    """The processes that take each step together with this one.

    Only `multi_worker_mirrored` has some; elsewhere, this process is alone. All of them
    have to call the same methods in the same order.

    Attributes:
      exist: True if there are others.
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

            any_stops = peers.agree(stops)[0] > 0
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

"""Sums gradients over the replicas of a strategy: once, before anything looks at their values.

Keras does this in different places. Keras 3 clips gradients and looks for overflows before it sums, on each replica by
itself, and neither generation can sum the gradients of an embedding whose number of rows changes from step to step within
one TensorFlow call, because a collective operation keeps the shape of its first round.

Here dense gradients take one all-reduce. The rows of a table that is small are summed as a dense gradient; those of a
larger one, without duplicates, are gathered in rounds of a fixed number of rows.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

DENSE_BYTES = 4 << 20  # a table up to this size is summed whole: that costs little more than a few rounds
ROUND_BYTES = 1 << 20  # of each replica's rows

Gradient = Any  # a tf.Tensor or tf.IndexedSlices


def sum_over_replicas(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Sums each gradient over all replicas. To be called in a replica context, in the same order by every replica.

    Args:
      gradients: This replica's gradients.

    Returns:
      The sums, the same on every replica. The sum of rows may be rows, with several for the same row of the table.
    """
    replica = tf.distribute.get_replica_context()
    if replica.strategy.num_replicas_in_sync == 1:
        return list(gradients)
    gathered = [index for index, gradient in enumerate(gradients) if _is_gathered(replica.strategy, gradient)]
    reduced = [index for index in range(len(gradients)) if index not in gathered]
    sums: dict[int, Gradient] = {}
    if reduced:
        # tf.identity: what comes out of a loop over accumulated batches is on no device, and the sum would go nowhere.
        parts = [tf.identity(_dense_unless_central(replica.strategy, gradients[index])) for index in reduced]
        sums.update(zip(reduced, replica.all_reduce(tf.distribute.ReduceOp.SUM, parts), strict=True))
    for index in gathered:
        sums[index] = replica.merge_call(_gather_rows, args=(without_duplicates(gradients[index]),))
    return [sums[index] for index in range(len(gradients))]


def without_duplicates(gradient: Gradient) -> Gradient:
    """Adds up the rows of a gradient that belong to the same row of the table; a dense gradient is returned as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.shape(rows)[0])
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _is_gathered(strategy: tf.distribute.Strategy, gradient: Gradient) -> bool:
    collective = isinstance(strategy, tf.distribute.MirroredStrategy | tf.distribute.MultiWorkerMirroredStrategy)
    return collective and isinstance(gradient, tf.IndexedSlices) and _table_bytes(gradient) > DENSE_BYTES


def _dense_unless_central(strategy: tf.distribute.Strategy, gradient: Gradient) -> Gradient:
    # Rows need no collective operation where all variables are in one place.
    if isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy):
        return gradient
    return tf.convert_to_tensor(gradient)


def _table_bytes(gradient: tf.IndexedSlices) -> int:
    shape = tf.get_static_value(gradient.dense_shape)
    return int(shape.prod()) * gradient.values.dtype.size if shape is not None else DENSE_BYTES + 1


def _gather_rows(strategy: tf.distribute.Strategy, own: Any) -> tf.IndexedSlices:
    """Gathers the rows of all replicas, in the cross-replica context of a step.

    Args:
      strategy: The strategy.
      own: Rows of each replica, no row twice.
    """
    first = strategy.experimental_local_results(own)[0]
    row_bytes = first.values.dtype.size * first.values.shape[1:].num_elements()
    per_round = max(1, ROUND_BYTES // row_bytes)
    rounds = strategy.extended.call_for_each_replica(_rounds_of_all, args=(own, per_round))
    num_rounds = strategy.experimental_local_results(rounds)[0]
    rows = tf.zeros([0], first.indices.dtype)
    values = tf.zeros([0, *first.values.shape[1:]], first.values.dtype)
    number = tf.constant(0)

    def gather(number: tf.Tensor, rows: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        parts = strategy.extended.call_for_each_replica(_gather_round, args=(own, number, per_round))
        more_rows, more_values = (strategy.experimental_local_results(part)[0] for part in parts)
        return number + 1, tf.concat([rows, more_rows], 0), tf.concat([values, more_values], 0)

    _, rows, values = tf.while_loop(
        lambda number, *_: number < num_rounds,
        gather,
        (number, rows, values),
        shape_invariants=(number.shape, tf.TensorShape([None]), tf.TensorShape([None, *first.values.shape[1:]])),
        parallel_iterations=1,  # rounds have to begin in the same order everywhere
    )
    there = rows >= 0  # the rest fills up the last round
    return tf.IndexedSlices(tf.boolean_mask(values, there), tf.boolean_mask(rows, there), first.dense_shape)


def _rounds_of_all(own: tf.IndexedSlices, per_round: int) -> tf.Tensor:
    """The number of rounds that the replica with the most rows needs."""
    needed = -(-tf.shape(own.indices)[0] // per_round)
    return tf.reduce_max(tf.distribute.get_replica_context().all_gather(needed[tf.newaxis], axis=0))


def _gather_round(own: tf.IndexedSlices, number: tf.Tensor, per_round: int) -> tuple[tf.Tensor, tf.Tensor]:
    """One round of all replicas: so many rows of each, filled up with rows that are called -1."""
    begin = tf.minimum(number * per_round, tf.shape(own.indices)[0])
    rows, values = own.indices[begin : begin + per_round], own.values[begin : begin + per_round]
    missing = per_round - tf.shape(rows)[0]
    rows = tf.ensure_shape(tf.pad(rows, [[0, missing]], constant_values=-1), [per_round])
    rest = [[0, 0]] * (len(values.shape) - 1)
    values = tf.ensure_shape(tf.pad(values, [[0, missing], *rest]), [per_round, *values.shape[1:]])
    all_rows, all_values = tf.distribute.get_replica_context().all_gather([rows, values], axis=0)
    return all_rows, all_values

"""Sums gradients over the replicas of a strategy, once, before their values are used.

Keras does this in different places. Keras 3 clips gradients and looks for overflows on
each replica before it sums. Neither version of Keras can sum the gradients of an
embedding whose number of rows changes from step to step within one TensorFlow call,
because a collective operation keeps the shape of its first round.

Here, dense gradients are summed in one all-reduce. The rows of a small table are summed
as a dense gradient. Those of a larger table, without duplicates, are gathered in rounds
of a fixed number of rows.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# A table up to this size is summed as a dense gradient, which costs little more than a
# few rounds.
DENSE_BYTES = 4 << 20
# Size of each replica's rows in one round.
ROUND_BYTES = 1 << 20

Gradient = Any  # a tf.Tensor or tf.IndexedSlices


@tf.autograph.experimental.do_not_convert  # contains no user code
def sum_over_replicas(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Sums each gradient over all replicas.

    Call this in a replica context, with gradients in the same order on every replica.
    The sums are the same on every replica. That of `tf.IndexedSlices` may be
    `tf.IndexedSlices` with several entries for the same row of the table.
    """
    replica = tf.distribute.get_replica_context()
    if replica.strategy.num_replicas_in_sync == 1:
        return list(gradients)
    gathered = [index for index, gradient in enumerate(gradients) if _is_gathered(replica.strategy, gradient)]
    reduced = [index for index in range(len(gradients)) if index not in gathered]
    sums: dict[int, Gradient] = {}
    if reduced:
        # tf.identity: the result of a loop over accumulated batches has no device, so
        # the sum would not know where to go.
        parts = [tf.identity(_dense_unless_central(replica.strategy, gradients[index])) for index in reduced]
        sums.update(zip(reduced, replica.all_reduce(tf.distribute.ReduceOp.SUM, parts), strict=True))
    for index in gathered:
        sums[index] = replica.merge_call(_gather_rows, args=(without_duplicates(gradients[index]),))
    return [sums[index] for index in range(len(gradients))]


def without_duplicates(gradient: Gradient) -> Gradient:
    """Adds up the rows of a gradient that belong to the same row of the table.

    Returns a dense gradient unchanged.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, segments = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, segments, tf.shape(rows)[0])
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _is_gathered(strategy: tf.distribute.Strategy, gradient: Gradient) -> bool:
    collective = isinstance(strategy, tf.distribute.MirroredStrategy | tf.distribute.MultiWorkerMirroredStrategy)
    return collective and isinstance(gradient, tf.IndexedSlices) and _table_bytes(gradient) > DENSE_BYTES


def _dense_unless_central(strategy: tf.distribute.Strategy, gradient: Gradient) -> Gradient:
    # If all variables are in one place, rows can be summed without a collective
    # operation.
    if isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy):
        return gradient
    return tf.convert_to_tensor(gradient)


def _table_bytes(gradient: tf.IndexedSlices) -> int:
    shape = tf.get_static_value(gradient.dense_shape)
    return int(shape.prod()) * gradient.values.dtype.size if shape is not None else DENSE_BYTES + 1


def _gather_rows(strategy: tf.distribute.Strategy, replica_rows: Any) -> tf.IndexedSlices:
    """Gathers the rows of all replicas, in the cross-replica context of a step.

    `replica_rows` is a `tf.IndexedSlices` on each replica, without duplicate rows.
    """
    first = strategy.experimental_local_results(replica_rows)[0]
    row_bytes = first.values.dtype.size * first.values.shape[1:].num_elements()
    rows_per_round = max(1, ROUND_BYTES // row_bytes)
    rounds = strategy.extended.call_for_each_replica(_count_rounds, args=(replica_rows, rows_per_round))
    num_rounds = strategy.experimental_local_results(rounds)[0]
    rows = tf.zeros([0], first.indices.dtype)
    values = tf.zeros([0, *first.values.shape[1:]], first.values.dtype)
    round_number = tf.constant(0)

    def gather(round_number: tf.Tensor, rows: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        parts = strategy.extended.call_for_each_replica(_gather_round, args=(replica_rows, round_number, rows_per_round))
        more_rows, more_values = (strategy.experimental_local_results(part)[0] for part in parts)
        return round_number + 1, tf.concat([rows, more_rows], 0), tf.concat([values, more_values], 0)

    _, rows, values = tf.while_loop(
        lambda round_number, *_: round_number < num_rounds,
        gather,
        (round_number, rows, values),
        shape_invariants=(round_number.shape, tf.TensorShape([None]), tf.TensorShape([None, *first.values.shape[1:]])),
        parallel_iterations=1,  # rounds have to start in the same order everywhere
    )
    is_row = rows >= 0  # the others are padding
    return tf.IndexedSlices(tf.boolean_mask(values, is_row), tf.boolean_mask(rows, is_row), first.dense_shape)


def _count_rounds(gradient: tf.IndexedSlices, rows_per_round: int) -> tf.Tensor:
    """Returns the number of rounds that the replica with the most rows needs."""
    num_rounds = -(-tf.shape(gradient.indices)[0] // rows_per_round)
    return tf.reduce_max(tf.distribute.get_replica_context().all_gather(num_rounds[tf.newaxis], axis=0))


def _gather_round(gradient: tf.IndexedSlices, round_number: tf.Tensor, rows_per_round: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Gathers one round of rows; returns their numbers and values.

    Replicas with too few rows are padded with rows numbered -1.
    """
    begin = tf.minimum(round_number * rows_per_round, tf.shape(gradient.indices)[0])
    end = begin + rows_per_round
    rows, values = gradient.indices[begin:end], gradient.values[begin:end]
    missing = rows_per_round - tf.shape(rows)[0]
    rows = tf.ensure_shape(tf.pad(rows, [[0, missing]], constant_values=-1), [rows_per_round])
    other_axes = [[0, 0]] * (len(values.shape) - 1)
    values = tf.ensure_shape(tf.pad(values, [[0, missing], *other_axes]), [rows_per_round, *values.shape[1:]])
    all_rows, all_values = tf.distribute.get_replica_context().all_gather([rows, values], axis=0)
    return all_rows, all_values

"""Computes, sums and applies gradients, with a loss scale, in Keras 2 and Keras 3.

Gradients are summed over the replicas once, before their values are used. Keras does
this in different places: Keras 3 clips them and looks for overflows on each replica
before it sums. Neither version can sum the gradients of an embedding whose number of
rows changes from step to step within one TensorFlow call, because a collective
operation keeps the shape of its first round.

Here, dense gradients are summed in one all-reduce. The rows of a small table are summed
as a dense gradient. Those of a larger table, without duplicates, are gathered in rounds
of a fixed number of rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.keras import autograph, loss_reduction, optimizers
from tfx_distribute.trainer_module.loop import step_timing

# A table up to this size is summed as a dense gradient, which costs little more than a
# few rounds.
DENSE_BYTES = 4 << 20
# Size of each replica's rows in one round.
ROUND_BYTES = 1 << 20

Gradient = Any  # a tf.Tensor or tf.IndexedSlices

_KERAS_3_SUM = "_all_reduce_sum_gradients"
# Methods with which optimizers sum gradients over replicas: Keras 3, Keras 2, and
# tf.keras.optimizers.legacy.
_SUMS = (_KERAS_3_SUM, "aggregate_gradients", "_aggregate_gradients")


def compute(
    optimizer: Any, compute_loss: Callable[[], tf.Tensor], variables: Sequence[Any], factor: tf.Tensor | float
) -> tuple[tf.Tensor, list]:
    """Computes the gradients of a loss.

    The optimizer that will apply them may scale the loss. `factor` multiplies the
    gradients of a scalar. Of a loss of any other shape, such as one number per example,
    the sum is differentiated, as under `fit`. Returns the mean of the loss, a float32
    scalar, and the gradient of each variable, or None.
    """
    with tf.GradientTape() as tape:
        loss = compute_loss()
        scaled_loss = _scale(loss, factor)
        if hasattr(optimizer, "get_scaled_loss"):  # Keras 2
            scaled_loss = autograph.converted(optimizer.get_scaled_loss)(scaled_loss)
        elif hasattr(optimizer, "scale_loss"):  # Keras 3, whose `apply` removes the scale again
            scaled_loss = autograph.converted(optimizer.scale_loss)(scaled_loss)
    inner = optimizers.unwrap(optimizer)
    own = getattr(type(inner), "compute_gradients", None)
    if own is getattr(tf.keras.optimizers.Optimizer, "compute_gradients", None) or own is None:
        gradients = tape.gradient(scaled_loss, variables)
    else:  # Keras 2 calls it in `minimize`; the user's may, for instance, center gradients
        gradients = [gradient for gradient, _ in autograph.converted(inner.compute_gradients)(scaled_loss, variables, tape)]
    if hasattr(optimizer, "get_unscaled_gradients"):
        gradients = autograph.converted(optimizer.get_unscaled_gradients)(gradients)
    loss = tf.cast(loss, tf.float32)
    return loss if loss.shape.rank == 0 else tf.reduce_mean(loss), gradients


def _scale(loss: tf.Tensor, factor: Any) -> tf.Tensor:
    """Multiplies a scalar loss by `factor`; sums any other loss.

    Adds no operation that would change nothing: on a GPU, each one takes a noticeable
    part of a small model's step.
    """
    if not loss_reduction.is_scalar(loss):
        return tf.reduce_sum(loss)
    scaled = loss if isinstance(factor, float) and factor == 1.0 else loss * tf.cast(factor, loss.dtype)
    return scaled if scaled.shape.rank == 0 else tf.reduce_sum(scaled)


def prepare(optimizer: Any, variables: Sequence[Any]) -> None:
    """Creates an optimizer's variables, and stops it from summing over replicas.

    `apply` sums gradients earlier. Keras 2 has an argument for it, which an
    `apply_gradients` of the user's need not know.
    """
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    elif hasattr(optimizer, "_create_all_weights"):  # tf.keras.optimizers.legacy
        optimizer._create_all_weights(variables)
    for each in optimizers.with_inner(optimizer):
        for name in _SUMS:
            if hasattr(each, name):
                setattr(each, name, lambda pairs: pairs)


def apply(optimizer: Any, gradients: Mapping[int, Any], variables: Sequence[Any], measures: bool = False) -> tf.Tensor:
    """Sums gradients, by the index of their variable, over replicas and applies them.

    Call this in a replica context. The optimizer sees only the sums when it checks for
    overflows and clips. Keras names the variables without a gradient. With `measures`,
    returns the seconds from the moment at which all replicas of this process had their
    gradients until the sums were there, a float64 scalar; else 0.
    """
    parts = list(gradients.values())
    begin = step_timing.moment_on_all_replicas(parts) if measures else None
    sums = _sum_over_replicas(parts)
    seconds = step_timing.moment_on_all_replicas(sums) - begin if measures else tf.zeros([], tf.float64)
    if hasattr(optimizers.unwrap(optimizer), _KERAS_3_SUM):
        # Keras 3 squares each gradient row separately, even if several belong to the
        # same row of the table. Keras 2 adds them up first.
        sums = list(map(_without_duplicates, sums))
    _update_rows_without_xla(optimizer, sums)
    by_index = dict(zip(gradients, sums, strict=True))
    autograph.converted(optimizer.apply_gradients)(
        [(by_index.get(index), variable) for index, variable in enumerate(variables)]
    )
    return seconds


def _update_rows_without_xla(optimizer: Any, gradients: Sequence[Any]) -> None:
    """Stops an optimizer from compiling its updates with XLA if a gradient is sparse.

    Keras 2 compiles them on a GPU, once for each number of different rows in a batch.
    That number changes from step to step, and compiling takes as long as many steps.
    """
    if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        for each in optimizers.with_inner(optimizer):
            if getattr(each, "jit_compile", False):
                each.jit_compile = False


def finalize(optimizer: Any, variables: Sequence[Any]) -> None:
    """Sets variables to their final values after training, such as moving averages."""
    inner = optimizers.unwrap(optimizer)
    if hasattr(inner, "finalize_variable_values"):
        # Keras 3 averages all that it was built with, those too that a callback has
        # frozen since. Keras 2 does not, and their averages may be outdated.
        inner.finalize_variable_values(getattr(inner, "_trainable_variables", variables))


def _sum_over_replicas(gradients: Sequence[Gradient]) -> list[Gradient]:
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
        parts = [gradients[index] for index in reduced]
        # Where all variables are in one place, rows are summed without a collective
        # operation.
        if not isinstance(replica.strategy, tf.distribute.experimental.CentralStorageStrategy):
            parts = [tf.convert_to_tensor(part) for part in parts]
        # tf.identity: the result of a loop over accumulated batches has no device, so
        # the sum would not know where to go.
        parts = [tf.identity(part) for part in parts]
        sums.update(zip(reduced, replica.all_reduce(tf.distribute.ReduceOp.SUM, parts), strict=True))
    for index in gathered:
        sums[index] = replica.merge_call(_gather_rows, args=(_without_duplicates(gradients[index]),))
    return [sums[index] for index in range(len(gradients))]


def _without_duplicates(gradient: Gradient) -> Gradient:
    """Adds up the rows of a gradient that belong to the same row of the table.

    Returns a dense gradient unchanged.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, segments = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, segments, tf.shape(rows)[0])
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _is_gathered(strategy: tf.distribute.Strategy, gradient: Gradient) -> bool:
    is_collective = isinstance(strategy, tf.distribute.MirroredStrategy | tf.distribute.MultiWorkerMirroredStrategy)
    if not (is_collective and isinstance(gradient, tf.IndexedSlices)):
        return False
    shape = tf.get_static_value(gradient.dense_shape)
    return shape is None or int(shape.prod()) * gradient.values.dtype.size > DENSE_BYTES


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

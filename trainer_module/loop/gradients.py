"""Computes and applies gradients, with a loss scale, in Keras 2 and Keras 3."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.keras import loss_reduction, optimizers
from tfx_distribute.trainer_module.loop import step_timing
from tfx_distribute.trainer_module.loop.replica_sum import sum_over_replicas, without_duplicates

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
            scaled_loss = optimizer.get_scaled_loss(scaled_loss)
        elif hasattr(optimizer, "scale_loss"):  # Keras 3, whose `apply` removes the scale again
            scaled_loss = optimizer.scale_loss(scaled_loss)
    inner = optimizers.unwrap(optimizer)
    own = getattr(type(inner), "compute_gradients", None)
    if own is getattr(tf.keras.optimizers.Optimizer, "compute_gradients", None) or own is None:
        gradients = tape.gradient(scaled_loss, variables)
    else:  # Keras 2 calls it in `minimize`; the user's may, for instance, center gradients
        gradients = [gradient for gradient, _ in inner.compute_gradients(scaled_loss, variables, tape)]
    if hasattr(optimizer, "get_unscaled_gradients"):
        gradients = optimizer.get_unscaled_gradients(gradients)
    loss = tf.cast(loss, tf.float32)
    return loss if loss.shape.rank == 0 else tf.reduce_mean(loss), gradients


@tf.autograph.experimental.do_not_convert  # contains no user code
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
    sums = sum_over_replicas(parts)
    seconds = step_timing.moment_on_all_replicas(sums) - begin if measures else tf.zeros([], tf.float64)
    if hasattr(optimizers.unwrap(optimizer), _KERAS_3_SUM):
        # Keras 3 squares each gradient row separately, even if several belong to the
        # same row of the table. Keras 2 adds them up first.
        sums = list(map(without_duplicates, sums))
    _update_rows_without_xla(optimizer, sums)
    by_index = dict(zip(gradients, sums, strict=True))
    optimizer.apply_gradients([(by_index.get(index), variable) for index, variable in enumerate(variables)])
    return seconds


@tf.autograph.experimental.do_not_convert  # contains no user code
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

"""Computes, clips and applies gradients, with a loss scale, in Keras 2 and Keras 3."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training import step_timing
from tfx_distribute.trainer_module.training.replica_sum import sum_over_replicas, without_duplicates


def set_global_clipnorm(optimizer: Any, global_clipnorm: float) -> None:
    """Makes an optimizer clip gradients by their global norm.

    It clips after it has summed gradients over replicas.

    Args:
      optimizer: A Keras optimizer.
      global_clipnorm: Maximum norm over the gradients of all variables; 0 leaves the
        optimizer unchanged.

    Raises:
      ConfigurationError: The optimizer does not support it.
    """
    if not global_clipnorm:
        return
    inner = unwrap(optimizer)
    if not hasattr(inner, "global_clipnorm"):
        raise ConfigurationError(
            f"global_clipnorm: the optimizer {type(inner).__name__} does not know it; use one of tf.keras.optimizers, or "
            "write global_clipnorm=0"
        )
    inner.clipnorm = inner.clipvalue = None  # Keras accepts only one of the three
    inner.global_clipnorm = global_clipnorm


def unwrap(optimizer: Any) -> Any:
    """Returns the optimizer that has the learning rate, which a loss scale may wrap."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def compute(
    optimizer: Any, compute_loss: Callable[[], tf.Tensor], variables: Sequence[Any], factor: float
) -> tuple[tf.Tensor, list]:
    """Computes the gradients of a loss.

    Args:
      optimizer: The optimizer that will apply them; it may scale the loss.
      compute_loss: Returns the loss, a scalar.
      variables: The variables to differentiate by.
      factor: Multiplies the gradients.

    Returns:
      The loss that `compute_loss` returned, as a float32 scalar, and the gradient of
      each variable, or None.
    """
    with tf.GradientTape() as tape:
        loss = compute_loss()
        scaled_loss = loss * tf.cast(factor, loss.dtype)
        if hasattr(optimizer, "get_scaled_loss"):  # Keras 2
            scaled_loss = optimizer.get_scaled_loss(scaled_loss)
        elif hasattr(optimizer, "scale_loss"):  # Keras 3, whose `apply` removes the scale again
            scaled_loss = optimizer.scale_loss(scaled_loss)
    gradients = tape.gradient(scaled_loss, variables)
    if hasattr(optimizer, "get_unscaled_gradients"):
        gradients = optimizer.get_unscaled_gradients(gradients)
    return tf.cast(loss, tf.float32), gradients


def leave_sum_to_apply(optimizer: Any) -> None:
    """Stops a Keras 3 optimizer from summing gradients over replicas.

    `apply` does this earlier. Keras 2 has an argument for it.
    """
    inner = unwrap(optimizer)
    if hasattr(inner, "_all_reduce_sum_gradients"):
        inner._all_reduce_sum_gradients = lambda pairs: pairs


def apply(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], measures: bool = False) -> tf.Tensor:
    """Sums gradients over replicas and applies them.

    Call this in a replica context. The optimizer sees only the sums when it checks for
    overflows and clips.

    Args:
      optimizer: A Keras optimizer.
      gradients: This replica's gradients.
      variables: Their variables, in the same order.
      measures: True to measure how long the sum takes.

    Returns:
      Seconds from the moment at which all replicas of this process had their gradients
      until the sums were there, a float64 scalar; 0 if it is not measured.
    """
    begin = step_timing.moment_on_all_replicas(gradients) if measures else None
    sums = sum_over_replicas(gradients)
    seconds = step_timing.moment_on_all_replicas(sums) - begin if measures else tf.zeros([], tf.float64)
    if hasattr(unwrap(optimizer), "_all_reduce_sum_gradients"):
        # Keras 3 squares each gradient row separately, even if several belong to the
        # same row of the table. Keras 2 adds them up first.
        optimizer.apply_gradients(zip(map(without_duplicates, sums), variables, strict=True))
    else:
        optimizer.apply_gradients(zip(sums, variables, strict=True), experimental_aggregate_gradients=False)
    return seconds


def finalize(optimizer: Any, variables: Sequence[Any]) -> None:
    """Sets variables to their final values after training, such as moving averages."""
    inner = unwrap(optimizer)
    if hasattr(inner, "finalize_variable_values"):
        inner.finalize_variable_values(variables)

"""Losses to new weights: gradients, clipping, loss scale, for both generations of Keras."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training.replica_sum import sum_over_replicas, without_duplicates


def clip(optimizer: Any, global_norm: float) -> None:
    """Has an optimizer clip gradients, once they are summed over replicas, to a norm over all variables; 0 leaves it be."""
    if not global_norm:
        return
    inner = unwrapped(optimizer)
    if not hasattr(inner, "global_clipnorm"):
        raise ConfigurationError(
            f"global_clipnorm: the optimizer {type(inner).__name__} does not know it; use one of tf.keras.optimizers, or "
            "write global_clipnorm=0"
        )
    inner.clipnorm = inner.clipvalue = None  # Keras takes one of the three
    inner.global_clipnorm = global_norm


def unwrapped(optimizer: Any) -> Any:
    """The optimizer that has the learning rate: a loss scale wraps it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def gradients(optimizer: Any, loss: Callable[[], tf.Tensor], variables: Sequence[Any], by: float) -> tuple[tf.Tensor, list]:
    """The gradients of a loss.

    Args:
      optimizer: What will apply them; it may scale the loss.
      loss: Computes the loss, a scalar.
      variables: What to differentiate by.
      by: What the gradients are multiplied by.

    Returns:
      The loss as `loss` gave it, a float32 scalar, and for each variable its gradient, or None.
    """
    with tf.GradientTape() as tape:
        value = loss()
        part = value * tf.cast(by, value.dtype)
        if hasattr(optimizer, "get_scaled_loss"):  # Keras 2
            part = optimizer.get_scaled_loss(part)
        elif hasattr(optimizer, "scale_loss"):  # Keras 3, whose `apply` takes the scale away again
            part = optimizer.scale_loss(part)
    found = tape.gradient(part, variables)
    if hasattr(optimizer, "get_unscaled_gradients"):
        found = optimizer.get_unscaled_gradients(found)
    return tf.cast(value, tf.float32), found


def leave_sum_to_apply(optimizer: Any) -> None:
    """Keeps a Keras 3 optimizer from summing gradients over replicas, which `apply` does before; Keras 2 can be asked to."""
    inner = unwrapped(optimizer)
    if hasattr(inner, "_all_reduce_sum_gradients"):
        inner._all_reduce_sum_gradients = lambda pairs: pairs


def apply(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """Sums gradients over replicas and applies them. To be called in a replica context.

    Whether they are finite, and how they are clipped, is decided on the sums.
    """
    sums = sum_over_replicas(gradients)
    if hasattr(unwrapped(optimizer), "_all_reduce_sum_gradients"):
        # Keras 3 squares rows one by one, also where several belong to the same row of the table. Keras 2 adds them up.
        optimizer.apply_gradients(zip(map(without_duplicates, sums), variables, strict=True))
    else:
        optimizer.apply_gradients(zip(sums, variables, strict=True), experimental_aggregate_gradients=False)


def finalize(optimizer: Any, variables: Sequence[Any]) -> None:
    """Gives variables the values that are kept after training, such as their moving averages."""
    inner = unwrapped(optimizer)
    if hasattr(inner, "finalize_variable_values"):
        inner.finalize_variable_values(variables)

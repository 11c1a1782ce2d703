"""Finds optimizers within others, and reads and scales learning rates."""

import contextlib
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras import attributes, keras_models


def unwrap(optimizer: Any) -> Any:
    """Returns the optimizer that has the learning rate, which a loss scale may wrap."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def with_inner(optimizer: Any) -> list[Any]:
    """Returns an optimizer, and those that it keeps, which it may delegate to.

    They may be in lists, dictionaries and plain objects in its attributes.
    """
    found: list[Any] = []
    pending = [optimizer]
    while pending:
        each = pending.pop()
        if keras_models.is_optimizer(each) and not any(each is other for other in found):
            found.append(each)
            pending += (value for _, value in attributes.walk(each))
    return found


def scale_rate(optimizer: Any, factor: float, has_own_steps: bool) -> None:
    """Multiplies the learning rate of a model's optimizer by `factor`.

    Raises:
      ConfigurationError: The optimizer has a learning rate schedule or is not a Keras
        optimizer, or the model has a `train_step` of its own.
    """
    inner, reason = unwrap(optimizer), ""
    if has_own_steps:
        reason = "the model has a train_step of its own, which may use several optimizers"
    elif not isinstance(inner, tf.keras.optimizers.Optimizer):
        reason = f"build_model's optimizer is {type(inner).__module__}.{type(inner).__name__}, not one of Keras's"
    elif isinstance(inner._learning_rate, tf.keras.optimizers.schedules.LearningRateSchedule):
        reason = "build_model's optimizer has a learning rate schedule, which is not changed from outside"
    if reason:
        raise ConfigurationError(
            f"learning_rate_scaling: {reason}; use context.num_replicas in the rate, and write learning_rate_scaling=none"
        )
    inner.learning_rate = float(inner.learning_rate.numpy()) * factor


def read_rate(optimizer: tf.keras.optimizers.Optimizer) -> float | None:
    """Returns the learning rate of the next step; None if it is not a single number."""
    with contextlib.suppress(Exception):  # a user's optimizer or schedule; training does not depend on it
        inner = unwrap(optimizer)
        rate = getattr(inner, "learning_rate", None)
        if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(inner.iterations)
        # A variable of several replicas has no value of its own, but converts to one.
        value = tf.convert_to_tensor(rate)
        return float(value) if value.shape.rank == 0 else None
    return None

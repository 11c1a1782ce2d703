"""Scales a learning rate from one replica's batch to the global batch, with a warm-up.

Source of the rules: Goyal et al. 2017, https://arxiv.org/abs/1706.02677 (linear,
warm-up); Krizhevsky 2014, https://arxiv.org/abs/1404.5997 (square root).
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training import optimizers as optimizers_lib

SETTLE_STEPS = 100


def scale(optimizers: Sequence[Any], factor: float, warmup_steps: int, in_step: bool = True) -> Callable[[], None] | None:
    """Multiplies the learning rate of a model's optimizer.

    Callbacks that set the learning rate keep working once the warm-up is over.

    Args:
      optimizers: The optimizers of the model.
      factor: Multiplies the learning rate.
      warmup_steps: Training steps in which the learning rate rises linearly from nearly
        0 to its final value; 0 for no warm-up.
      in_step: True if all replicas take each step together. Workers that do not wait
        for each other may set the rate of an outdated step, so they keep setting it for
        `SETTLE_STEPS` more steps. During these, a callback cannot change it.

    Returns:
      A function to call before each training step, in the graph; None if there is no
      warm-up.

    Raises:
      ConfigurationError: There are several optimizers, or the only one has a learning
        rate schedule or is not a Keras optimizer. How to scale these is not known here.
    """
    if factor == 1.0 and not warmup_steps:
        return None
    if len(optimizers) > 1:
        raise ConfigurationError(
            f"learning_rate_scaling: the model has {len(optimizers)} optimizers, and how often it uses each is not known; "
            "use context.num_replicas in their learning rates, and write learning_rate_scaling=none and "
            "warmup_steps=0"
        )
    inner = optimizers_lib.unwrap(optimizers[0])
    if not isinstance(inner, tf.keras.optimizers.Optimizer):
        raise ConfigurationError(
            f"learning_rate_scaling: build_model's optimizer is {type(inner).__module__}.{type(inner).__name__}; "
            "use one of tf.keras.optimizers, or write learning_rate_scaling=none and warmup_steps=0"
        )
    if isinstance(inner._learning_rate, tf.keras.optimizers.schedules.LearningRateSchedule):
        raise ConfigurationError(
            "learning_rate_scaling: build_model's optimizer has a learning rate schedule, which is not changed from "
            "outside; use context.num_replicas in it, and write learning_rate_scaling=none and warmup_steps=0"
        )
    final_rate = float(inner.learning_rate.numpy()) * factor
    inner.learning_rate = final_rate
    if not warmup_steps:
        return None

    last_step = warmup_steps if in_step else warmup_steps + SETTLE_STEPS

    def before_step() -> None:
        step = tf.cast(optimizers_lib.batches_applied(inner), tf.float32) + 1.0
        if step <= float(last_step):
            inner.learning_rate.assign(final_rate * tf.minimum(step / float(warmup_steps), 1.0))

    return before_step


def read(optimizer: tf.keras.optimizers.Optimizer) -> float | None:
    """Returns the learning rate of an optimizer's next step; None if it has not one."""
    with contextlib.suppress(Exception):  # a user's optimizer or schedule; training does not depend on it
        inner = optimizers_lib.unwrap(optimizer)
        rate = getattr(inner, "learning_rate", None)
        if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(inner.iterations)
        # A variable of several replicas has no value of its own, but converts to one.
        value = tf.convert_to_tensor(rate)
        return float(value) if value.shape.rank == 0 else None
    return None

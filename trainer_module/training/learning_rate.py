"""The learning rate that suits one replica's batch -> the one for the global batch, with a warm-up.

Source of the rules: Goyal et al. 2017, https://arxiv.org/abs/1706.02677 (linear, warm-up); Krizhevsky 2014,
https://arxiv.org/abs/1404.5997 (square root).
"""

from collections.abc import Callable

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training import gradients

SETTLE_STEPS = 100


def scale(
    optimizer: tf.keras.optimizers.Optimizer, by: float, warmup_steps: int, in_step: bool = True
) -> Callable[[], None] | None:
    """Multiplies an optimizer's learning rate.

    Callbacks that set the learning rate keep working once the warm-up is over.

    Args:
      optimizer: The optimizer of a compiled model.
      by: The factor.
      warmup_steps: Training steps in which the learning rate rises, evenly, from nearly 0 to its value.
      in_step: Whether one step is taken after the other. Workers that do not wait for each other may set the rate of a step
        long past; so they set it for `SETTLE_STEPS` more, in which a callback cannot.

    Returns:
      What is to be done before each training step of the warm-up, in the graph; None without one.

    Raises:
      ConfigurationError: The optimizer has a schedule, which cannot be told from here what it is meant to be.
    """
    if by == 1.0 and not warmup_steps:
        return None
    inner = gradients.unwrapped(optimizer)
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
    peak = float(inner.learning_rate.numpy()) * by
    inner.learning_rate = peak
    if not warmup_steps:
        return None

    last = warmup_steps if in_step else warmup_steps + SETTLE_STEPS

    def before_step() -> None:
        step = tf.cast(inner.iterations, tf.float32) + 1.0
        if step <= float(last):
            inner.learning_rate.assign(peak * tf.minimum(step / float(warmup_steps), 1.0))

    return before_step

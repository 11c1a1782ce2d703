"""Scales a learning rate from one replica's batch to the global batch.

Source of the rules: Goyal et al. 2017, https://arxiv.org/abs/1706.02677 (linear);
Krizhevsky 2014, https://arxiv.org/abs/1404.5997 (square root).
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras import optimizers as optimizers_lib


def scale(optimizers: Sequence[Any], factor: float) -> None:
    """Multiplies the learning rate of a model's optimizer by `factor`.

    Raises:
      ConfigurationError: There are several optimizers, or the only one has a learning
        rate schedule or is not a Keras optimizer. How to scale these is not known here.
    """
    if factor == 1.0:
        return
    if len(optimizers) > 1:
        raise ConfigurationError(
            f"learning_rate_scaling: the model has {len(optimizers)} optimizers, and how often it uses each is not known; "
            "use context.num_replicas in their learning rates, and write learning_rate_scaling=none"
        )
    inner = optimizers_lib.unwrap(optimizers[0])
    if not isinstance(inner, tf.keras.optimizers.Optimizer):
        raise ConfigurationError(
            f"learning_rate_scaling: build_model's optimizer is {type(inner).__module__}.{type(inner).__name__}; "
            "use one of tf.keras.optimizers, or write learning_rate_scaling=none"
        )
    if isinstance(inner._learning_rate, tf.keras.optimizers.schedules.LearningRateSchedule):
        raise ConfigurationError(
            "learning_rate_scaling: build_model's optimizer has a learning rate schedule, which is not changed from "
            "outside; use context.num_replicas in it, and write learning_rate_scaling=none"
        )
    inner.learning_rate = float(inner.learning_rate.numpy()) * factor


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

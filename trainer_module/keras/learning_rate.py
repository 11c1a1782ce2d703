"""Scales a learning rate from one replica's batch to the global batch, with a warm-up.

Source of the rules: Goyal et al. 2017, https://arxiv.org/abs/1706.02677 (linear,
warm-up); Krizhevsky 2014, https://arxiv.org/abs/1404.5997 (square root).
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras import optimizers as optimizers_lib


class WarmUp:
    """Multiplies an optimizer's learning rate in its first steps by a rising factor.

    The optimizer's variable keeps the rate that the user and callbacks have set. Only
    where steps are traced is there another one, the product, in its place.

        warm_up = WarmUp(optimizer, steps=100)
        with warm_up.in_effect():
            train_function()  # which calls before_step before each step

    Create it in the strategy's scope. The optimizer is one without a schedule. The
    factor rises linearly from nearly 0 to 1 in `steps` training steps.
    """

    def __init__(self, optimizer: Any, steps: int):
        self._optimizer, self._steps, self._base = optimizer, steps, optimizer._learning_rate
        first_replica = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self._product = tf.Variable(0.0, trainable=False, dtype=tf.float32, aggregation=first_replica)

    def before_step(self) -> None:
        """Sets the rate of the next step, in the graph, once for all replicas."""
        step = tf.cast(optimizers_lib.batches_applied(self._optimizer), tf.float32) + 1.0
        factor = tf.minimum(step / float(self._steps), 1.0)
        self._product.assign(tf.cast(tf.convert_to_tensor(self._base), tf.float32) * factor)

    @contextlib.contextmanager
    def in_effect(self) -> Iterator[None]:
        """Makes steps that are traced within the block use the product."""
        attributes = vars(self._optimizer)  # an optimizer would track what is set otherwise
        attributes["_learning_rate"] = self._product
        try:
            yield
        finally:
            attributes["_learning_rate"] = self._base


def scale(optimizers: Sequence[Any], factor: float, warmup_steps: int) -> WarmUp | None:
    """Multiplies the learning rate of a model's optimizer by `factor`.

    Returns the warm-up, in whose `warmup_steps` training steps the rate rises linearly
    from nearly 0 to its value; None if there is none.

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
    inner.learning_rate = float(inner.learning_rate.numpy()) * factor
    return WarmUp(inner, warmup_steps) if warmup_steps else None


def read(optimizer: tf.keras.optimizers.Optimizer, warmup_steps: int = 0) -> float | None:
    """Returns the learning rate of an optimizer's next step; None if it has not one."""
    with contextlib.suppress(Exception):  # a user's optimizer or schedule; training does not depend on it
        inner = optimizers_lib.unwrap(optimizer)
        rate = getattr(inner, "learning_rate", None)
        if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(inner.iterations)
        # A variable of several replicas has no value of its own, but converts to one.
        value = tf.convert_to_tensor(rate)
        warmed = min((int(optimizers_lib.batches_applied(inner)) + 1) / warmup_steps, 1.0) if warmup_steps else 1.0
        return float(value) * warmed if value.shape.rank == 0 else None
    return None

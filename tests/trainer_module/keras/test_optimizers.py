import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras import optimizers
from tfx_distribute.trainer_module.loop import gradients


class Holder:
    def __init__(self, optimizer):
        self.optimizer = optimizer


class Multi(tf.keras.optimizers.SGD):
    """Delegates to others, as TensorFlow Addons' MultiOptimizer does."""

    def __init__(self, *parts):
        super().__init__(0.1)
        self.optimizer_specs = [{"optimizer": parts[0]}, Holder(parts[1])]

    def apply_gradients(self, grads_and_vars, **options):
        first, second = grads_and_vars
        self.optimizer_specs[0]["optimizer"].apply_gradients([first])
        self.optimizer_specs[1].optimizer.apply_gradients([second])


def test_none_that_another_one_keeps_sums_over_replicas_again():
    """Replicas' gradients are summed before."""
    parts = tf.keras.optimizers.SGD(0.1), tf.keras.optimizers.SGD(0.1)
    multi = Multi(*parts)
    assert {id(each) for each in optimizers.with_inner(multi)} == {id(multi), *map(id, parts)}
    gradients.prepare(multi, [tf.Variable(1.0), tf.Variable(1.0)])
    pairs = [("gradient", "variable")]
    assert all(each.aggregate_gradients(pairs) is pairs for each in parts)


@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, tf.keras.mixed_precision.LossScaleOptimizer])
def test_a_rate_is_multiplied(wrap):
    optimizer = tf.keras.optimizers.SGD(0.5)
    optimizers.scale_rate(wrap(optimizer), 4.0, has_own_steps=False)
    assert float(optimizer.learning_rate) == 2.0


class Unusual:
    def __init__(self, learning_rate):
        self.learning_rate, self.iterations = learning_rate, 0


@pytest.mark.parametrize(
    ("optimizer", "has_own_steps", "reason"),
    [
        (tf.keras.optimizers.SGD(0.5), True, "a train_step of its own"),
        (tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.CosineDecay(0.1, 10)), False, "a learning rate schedule"),
        (Unusual(0.1), False, "test_optimizers.Unusual"),
    ],
)
def test_a_rate_that_is_not_known_is_not_multiplied(optimizer, has_own_steps, reason):
    with pytest.raises(ConfigurationError, match=f"^learning_rate_scaling: .*{reason}.*; use context.num_replicas"):
        optimizers.scale_rate(optimizer, 2.0, has_own_steps)


class FailingSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        (tf.keras.optimizers.SGD(0.5), 0.5),
        (tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.ExponentialDecay(0.25, 1, 0.5)), 0.25),
        (Unusual([0.1, 0.2]), None),
        (Unusual(None), None),
        (Unusual(FailingSchedule()), None),
    ],
)
def test_the_rate_to_report(optimizer, rate):
    assert optimizers.read_rate(optimizer) == rate

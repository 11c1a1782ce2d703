import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training import optimizers
from tfx_distribute.trainer_module.training.model_adapters import factory
from tfx_distribute.trainer_module.user_code.task import Task


def test_optimizers_of_a_task_of_its_own():
    """One that a loss scale wraps is one optimizer."""

    class Pair(Task):
        def __init__(self):
            self.model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
            self.optimizer = tf.keras.optimizers.SGD()
            self.critics = []

        def train_step(self, features, label):
            return tf.constant(0.0)

        eval_step = train_step

    task = Pair()
    task.model.compile(tf.keras.mixed_precision.LossScaleOptimizer(task.optimizer))
    adapter = factory.make(task, "f")
    assert len(adapter.optimizers()) == 1
    task.optimizer_class = tf.keras.optimizers.SGD
    task.model.optimizer = tf.keras.optimizers.SGD()  # as one that was loaded has
    assert adapter.optimizers() == [task.optimizer]
    assert int(adapter.updates()) == 0
    task.critics.append(tf.keras.optimizers.SGD())
    pair = adapter.optimizers()
    assert len(pair) == 2
    optimizers.set_global_clipnorm(pair, 0.0)
    with pytest.raises(ConfigurationError, match="global_clipnorm: the model has 2 optimizers"):
        optimizers.set_global_clipnorm(pair, 1.0)

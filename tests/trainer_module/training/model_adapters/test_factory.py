import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training.model_adapters import factory
from tfx_distribute.trainer_module.user_code.task import Task


class NoCall(tf.keras.Model):
    pass


class NoCallTask(Task):
    train_step = eval_step = lambda self, features, label: 0.0

    def __init__(self):
        self.model, self.optimizer = NoCall(), tf.keras.optimizers.SGD()


def test_a_model_without_call_could_not_be_served():
    compiled = NoCall()
    compiled.compile()
    for returned in (compiled, NoCallTask()):
        with pytest.raises(
            ConfigurationError, match=r"^module: the model NoCall has no call.*write def call\(self, features\)"
        ):
            factory.make(returned, "f")

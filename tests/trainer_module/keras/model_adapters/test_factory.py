import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras.model_adapters import factory
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


def compiled(model_class=tf.keras.Model, optimizer="sgd"):
    inputs = tf.keras.Input((2,))
    model = model_class(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize("module", ["model", "keras_model"])
@pytest.mark.parametrize(("method", "step"), [("make_train_function", "train_step"), ("make_test_function", "test_step")])
def test_a_loop_of_the_models_own_would_not_be_called(method, step, module):
    own = {method: lambda self, *arguments, **options: None, "__module__": module}
    own_loop = type("OwnLoop", (tf.keras.Model,), own)
    message = rf"^module: the model OwnLoop has a {method} of its own.*; write def {step}\(self, data\) in OwnLoop"
    with pytest.raises(ConfigurationError, match=message):
        factory.make(compiled(own_loop), "f")


class OwnFit(tf.keras.Model):
    """Prepares the arguments of `fit`, as the models of Hugging Face do."""

    def fit(self, *arguments, **options):
        return super().fit(*arguments, **options)


def test_a_fit_of_the_models_own_is_not_called():
    with pytest.warns(UserWarning, match="^module: the model OwnFit has a fit of its own, which is not called here"):
        factory.make(compiled(OwnFit), "f")


class Halving(tf.keras.optimizers.SGD):
    def minimize(self, loss, var_list, tape=None):
        self.apply_gradients([(gradient / 2.0, each) for gradient, each in self.compute_gradients(loss, var_list, tape)])


class OwnStep(tf.keras.Model):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0]))
        self.optimizer.minimize(loss, self.trainable_variables, tape)
        return {"loss": loss}


class HalvingTask(NoCallTask):
    def __init__(self):
        self.model, self.optimizer = compiled(), Halving()


def test_a_minimize_of_the_optimizers_own_is_called_by_own_steps_only():
    message = "^module: the optimizer Halving has a minimize of its own.*; write def apply_gradients"
    for returned in (compiled(optimizer=Halving()), HalvingTask()):
        with pytest.raises(ConfigurationError, match=message):
            factory.make(returned, "f")
    adapter = factory.make(compiled(OwnStep, Halving(0.1)), "f")
    kernel = adapter.model.trainable_variables[0]
    before = kernel.numpy()
    adapter.train_step(tf.ones([4, 2]), tf.ones([4, 1]))
    assert kernel.numpy() == pytest.approx(before - 0.05)

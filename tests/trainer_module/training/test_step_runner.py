import pytest
import tensorflow as tf
from ones import Ones, model_with

from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.training import model_adapters
from tfx_distribute.trainer_module.training.step_runner import StepRunner


def steps_of(model) -> StepRunner:
    return StepRunner(model_adapters.make(model, "f"), tf.distribute.get_strategy(), Ones(), TrainingOptions(2))


def test_loss_without_a_gradient_is_refused():
    model = model_with(tf.keras.optimizers.SGD(0.1))
    model.compile(tf.keras.optimizers.SGD(0.1), lambda truth, prediction: tf.round(prediction - truth))
    steps = steps_of(model)
    steps.open(0)
    with pytest.raises(Exception, match="module: the loss does not depend on any trainable variable"):
        steps.train(1)


def test_variable_that_the_loss_does_not_depend_on_is_named():
    inputs = tf.keras.Input((1,))
    used, unused = tf.keras.layers.Dense(1), tf.keras.layers.Dense(1, name="unused")
    model = tf.keras.Model(inputs, used(inputs) + 0.0 * tf.stop_gradient(unused(inputs)))
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    steps = steps_of(model)
    steps.open(0)
    with pytest.warns(UserWarning, match="does not depend on unused/kernel:0, unused/bias:0, which will not be trained"):
        steps.train(1)


class OwnStep(tf.keras.Model):
    def train_step(self, data):
        return {**super().train_step(data), "answer": tf.constant(42.0)}


def test_what_an_own_step_logs_beside_metrics_is_logged():
    inputs = tf.keras.Input((1,))
    model = OwnStep(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile(tf.keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    steps = steps_of(model)
    steps.open(0)
    steps.train(3)
    logs = model_adapters.as_floats(steps.metrics())
    assert set(logs) == {"loss", "mae", "answer"}
    assert logs["answer"] == 42.0

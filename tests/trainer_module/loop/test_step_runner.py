import keras
import numpy as np
import pytest
import tensorflow as tf
from ones import Ones, model_with

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras import keras_metrics
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.loop import gradients
from tfx_distribute.trainer_module.loop.step_runner import StepRunner


def make_step_runner(model, accumulated: int = 1) -> StepRunner:
    options = TrainingOptions(2, gradient_accumulation_steps=accumulated)
    step_runner = StepRunner(factory.make(model, "f"), tf.distribute.get_strategy(), Ones(), options)
    step_runner.open(0)
    return step_runner


@pytest.mark.parametrize("accumulated", [1, 2])
def test_keras_names_variables_without_a_gradient(caplog, accumulated):
    """As under `fit`; without any, nothing would be trained."""
    inputs = tf.keras.Input((1,))
    used, unused = tf.keras.layers.Dense(1), tf.keras.layers.Dense(1, name="unused")
    model = tf.keras.Model(inputs, used(inputs) + 0.0 * tf.stop_gradient(unused(inputs)))
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    make_step_runner(model, accumulated).train(1)
    assert "Gradients do not exist for variables ['unused/kernel:0', 'unused/bias:0']" in caplog.text
    used.trainable = False
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        make_step_runner(model, accumulated).train(1)


def two_layers() -> tf.keras.Model:
    inputs = tf.keras.Input((1,))
    hidden = tf.keras.layers.Dense(1, kernel_initializer="ones", name="first")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="zeros", name="last")(hidden))
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def test_a_layer_that_a_callback_freezes_before_the_first_step():
    model = two_layers()
    step_runner = make_step_runner(model)
    model.layers[1].trainable = False  # as in on_train_begin
    step_runner.train(2)
    (first, _), (last, _) = (layer.get_weights() for layer in model.layers[1:])
    assert (first == 1.0).all()
    assert (last != 0.0).all()


@pytest.mark.parametrize("optimizers_of", [tf.keras.optimizers, keras.optimizers])
def test_moving_averages_of_a_model_of_which_a_callback_freezes_a_layer(optimizers_of):
    keras_of = tf.keras if optimizers_of is tf.keras.optimizers else keras
    model = keras_of.Sequential([keras_of.Input((1,)), keras_of.layers.Dense(1), keras_of.layers.Dense(1)])
    optimizer = optimizers_of.SGD(0.1, use_ema=True)
    optimizer.build(model.trainable_variables)
    first, last = model.layers
    first.trainable = False  # as in on_train_begin
    kernel = first.get_weights()[0]
    for _ in range(2):
        optimizer.apply_gradients([(tf.ones_like(each), each) for each in last.trainable_variables])
    before = last.get_weights()[0].copy()
    gradients.finalize(optimizer, model.trainable_variables)
    np.testing.assert_allclose(first.get_weights()[0], kernel, rtol=1e-6)  # averages of one number are rounded
    assert (last.get_weights()[0] > before).all(), "the average of the last steps"


class OwnStep(tf.keras.Model):
    def train_step(self, data):
        return {**super().train_step(data), "answer": tf.constant(42.0)}


def own_step() -> tf.keras.Model:
    inputs = tf.keras.Input((1,))
    model = OwnStep(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile(tf.keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


def test_own_train_step_cannot_accumulate():
    with pytest.raises(ConfigurationError, match="^module: the model has a train_step of its own, which applies gradients"):
        make_step_runner(own_step(), accumulated=2)


def test_values_that_a_train_step_logs_besides_metrics_are_logged():
    step_runner = make_step_runner(own_step())
    step_runner.train(3)
    logs = keras_metrics.as_floats(step_runner.metrics())
    assert set(logs) == {"loss", "mae", "answer"}
    assert logs["answer"] == 42.0


class Halves(tf.keras.optimizers.SGD):
    def compute_gradients(self, loss, var_list, tape=None):
        return [(gradient / 2, variable) for gradient, variable in super().compute_gradients(loss, var_list, tape)]


def test_an_optimizer_may_compute_gradients_itself():
    weights = []
    for optimizer in (tf.keras.optimizers.SGD(0.1), Halves(0.2)):
        tf.keras.utils.set_random_seed(1)
        step_runner = make_step_runner(model := model_with(optimizer))
        before = model.get_weights()
        step_runner.train(1)
        weights.append([new - old for new, old in zip(model.get_weights(), before, strict=True)])
    assert all(np.any(change) for change in weights[0])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_every_step_draws_other_numbers_and_every_training_the_same():
    drawn = []

    class Noisy(tf.keras.layers.Dropout):
        def call(self, inputs, training=None):
            mask = super().call(tf.ones([64]), training=training)
            tf.py_function(lambda values: drawn.append(tuple(values.numpy())), [mask], [])
            return inputs

    def train():
        # As `model_builder` does.
        tf.keras.utils.set_random_seed(1)
        tf.keras.backend.experimental.enable_tf_random_generator()
        try:
            inputs = tf.keras.Input((1,))
            model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(Noisy(0.5)(inputs)))
            model.compile("sgd", "mse")
            step_runner = make_step_runner(model)
        finally:
            tf.keras.backend.experimental.disable_tf_random_generator()
        drawn.clear()
        step_runner.train(20)
        step_runner.train(20)
        return [*drawn]

    first = train()
    assert len(set(first)) == len(first) == 40
    assert train() == first


class Logged(tf.keras.layers.Layer):
    def call(self, values):
        with tf.name_scope("group"):
            tf.summary.scalar("mean", tf.reduce_mean(values), step=0)
        return values


class Rate(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        tf.summary.scalar("rate", 0.01, step=tf.cast(step, tf.int64))
        return tf.constant(0.01)


@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"]], ids=len)
@pytest.mark.parametrize("accumulated", [1, 2])
def test_tags_of_summaries_are_those_of_fit(tmp_path, devices, accumulated):
    """They do not begin with the names of the loops that the steps run in."""
    strategy = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
    with strategy.scope(), tf.summary.create_file_writer(str(tmp_path)).as_default():
        inputs = tf.keras.Input((1,))
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(Logged(name="logged")(inputs)), name="model")
        model.compile(tf.keras.optimizers.SGD(Rate()), "mse")
        make_step_runner(model, accumulated).train(2)
    (file,) = map(str, tmp_path.iterdir())
    events = tf.compat.v1.train.summary_iterator(file)
    assert {value.tag for event in events for value in event.summary.value} == {"rate", "model/logged/group/mean"}

import pytest
import tensorflow as tf
from ones import Ones, model_with

from tfx_distribute.trainer_module.errors import ConfigurationError, PreemptedError
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.strategy_table import learning_rate_factor
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras import learning_rate, optimizers
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.loop.epoch_runner import StepCounter
from tfx_distribute.trainer_module.loop.step_runner import StepRunner
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter


@pytest.mark.parametrize(("scaling", "batches", "factor"), [("none", 4, 1.0), ("linear", 4, 4.0), ("sqrt", 4, 2.0)])
def test_factor(scaling, batches, factor):
    assert learning_rate_factor(scaling, batches) == factor


def test_scaled_without_a_warmup():
    model = model_with(tf.keras.optimizers.SGD(0.5))
    assert learning_rate.scale([model.optimizer], 4.0, 0) is None
    assert float(model.optimizer.learning_rate) == 2.0


class OwnStep(tf.keras.Model):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0], training=True))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights, strict=True))
        return {"loss": loss}


@pytest.mark.parametrize("model_class", [tf.keras.Model, OwnStep])
@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, tf.keras.mixed_precision.LossScaleOptimizer])
def test_a_warmup_is_a_factor_on_the_rate_that_callbacks_set(wrap, model_class):
    """The bias shows the rate of each step: its gradient is 1."""
    inputs = tf.keras.Input((1,))
    model = model_class(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile(wrap(tf.keras.optimizers.SGD(0.01)), lambda truth, prediction: prediction)
    if model_class is OwnStep:
        model.optimizer = optimizers.unwrap(model.optimizer)
    warm_up = learning_rate.scale([model.optimizer], 2.0, 4)
    runner = StepRunner(factory.make(model, "f"), tf.distribute.get_strategy(), Ones(), TrainingOptions(2), warm_up)
    runner.open(0)

    def rate_of_step() -> float:
        before = model.get_weights()[1][0]
        runner.train(1)
        return before - model.get_weights()[1][0]

    assert float(model.optimizer.learning_rate) == pytest.approx(0.02)
    assert learning_rate.read(model.optimizer, 4) == pytest.approx(0.005)
    assert rate_of_step() == pytest.approx(0.005, rel=1e-4)
    model.optimizer.learning_rate = 0.1  # as a callback would
    assert rate_of_step() == pytest.approx(0.05, rel=1e-4)
    assert rate_of_step() == pytest.approx(0.075, rel=1e-4)
    tf.keras.backend.set_value(model.optimizer.learning_rate, float(model.optimizer.learning_rate) / 2)
    assert rate_of_step() == pytest.approx(0.05, rel=1e-4)
    assert rate_of_step() == pytest.approx(0.05, rel=1e-4)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.05)


def test_schedule_is_not_scaled():
    model = model_with(tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.CosineDecay(0.1, 10)))
    assert learning_rate.scale([model.optimizer], 1.0, 0) is None
    with pytest.raises(
        ConfigurationError, match="learning_rate_scaling: build_model's optimizer has a learning rate schedule"
    ):
        learning_rate.scale([model.optimizer], 2.0, 0)


def test_several_optimizers_are_not_scaled():
    """A GAN may update one of them five times in a step, and its compiled one never."""
    pair = [tf.keras.optimizers.SGD(), tf.keras.optimizers.SGD()]
    assert learning_rate.scale(pair, 1.0, 0) is None
    for factor, warmup_steps in ((2.0, 0), (1.0, 5)):
        with pytest.raises(ConfigurationError, match="the model has 2 optimizers"):
            learning_rate.scale(pair, factor, warmup_steps)


class Unusual:
    def __init__(self, learning_rate):
        self.learning_rate, self.iterations = learning_rate, 0


class FailingSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        (tf.keras.optimizers.SGD(0.5), 0.5),
        (tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.ExponentialDecay(0.25, 1, 0.5)), 0.25),
        (Unusual([0.1, 0.2]), None),
        (Unusual([0.1]), None),
        (Unusual({"a": 0.1}), None),
        (Unusual(None), None),
        (Unusual(FailingSchedule()), None),
    ],
)
def test_the_rate_to_report(optimizer, rate):
    assert learning_rate.read(optimizer) == rate


def test_an_error_is_reported_without_the_rate(tmp_path):
    """It may be on a parameter server that the error is about."""
    plan = make_plan(TrainingOptions(2, epochs=1), 2, 1)
    counter = StepCounter(Reporter(str(tmp_path / "progress")), plan, 2, pytest.fail)
    with pytest.raises(PreemptedError), counter.reporting_step_on_error():
        raise PreemptedError("saved")
    assert Progress.from_json((tmp_path / "progress").read_text()).phase == "train"

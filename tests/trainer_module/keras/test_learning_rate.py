import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, PreemptedError
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.strategy_table import learning_rate_factor
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras import learning_rate
from tfx_distribute.trainer_module.loop.epoch_runner import StepCounter
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter


@pytest.mark.parametrize(("scaling", "batches", "factor"), [("none", 4, 1.0), ("linear", 4, 4.0), ("sqrt", 4, 2.0)])
def test_factor(scaling, batches, factor):
    assert learning_rate_factor(scaling, batches) == factor


@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, tf.keras.mixed_precision.LossScaleOptimizer])
def test_a_rate_is_multiplied(wrap):
    optimizer = tf.keras.optimizers.SGD(0.5)
    learning_rate.scale([wrap(optimizer)], 4.0)
    assert float(optimizer.learning_rate) == 2.0


def test_schedule_is_not_scaled():
    optimizer = tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.CosineDecay(0.1, 10))
    learning_rate.scale([optimizer], 1.0)
    with pytest.raises(
        ConfigurationError, match="learning_rate_scaling: build_model's optimizer has a learning rate schedule"
    ):
        learning_rate.scale([optimizer], 2.0)


def test_several_optimizers_are_not_scaled():
    """A GAN may update one of them five times in a step, and its compiled one never."""
    pair = [tf.keras.optimizers.SGD(), tf.keras.optimizers.SGD()]
    learning_rate.scale(pair, 1.0)
    with pytest.raises(ConfigurationError, match="the model has 2 optimizers"):
        learning_rate.scale(pair, 2.0)


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

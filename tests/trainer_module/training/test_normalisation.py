"""Tests which losses Keras 2 computes, and how, within a strategy."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.training import normalisation


@pytest.fixture(autouse=True)
def _restore():
    yield
    normalisation._restore()


def squared_error() -> float:
    loss = tf.keras.losses.MeanSquaredError()  # whose reduction is "auto"
    return float(loss(tf.constant([[1.0], [3.0]]), tf.zeros([2, 1])))


def test_on_one_replica_a_train_step_may_use_losses_as_without_a_strategy():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        normalisation.use_keras_means()
        assert strategy.run(squared_error) == 5.0


def test_on_several_replicas_keras_refuses_them():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        normalisation.use_keras_means()
        with pytest.raises(ValueError, match=r"Reduction\.SUM"):
            strategy.run(squared_error)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [([], True), ([1], True), ([1, 1], True), (None, True), ([None], False), ([8], False), ([None, 1], False)],
)
def test_losses_of_one_number(shape, expected):
    assert normalisation.is_scalar(SimpleNamespace(shape=tf.TensorShape(shape))) is expected

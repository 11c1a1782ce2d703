"""Tests which losses Keras 2 computes, and how, within a strategy."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from ones import Ones

from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras import loss_reduction
from tfx_distribute.trainer_module.keras.keras_metrics import as_floats
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.loop.step_runner import StepRunner


@pytest.fixture(autouse=True)
def _restore():
    yield
    loss_reduction._restore()


def squared_error() -> float:
    loss = tf.keras.losses.MeanSquaredError()  # whose reduction is "auto"
    return float(loss(tf.constant([[1.0], [3.0]]), tf.zeros([2, 1])))


def test_on_one_replica_a_train_step_may_use_losses_as_without_a_strategy():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        loss_reduction.use_keras_means()
        assert strategy.run(squared_error) == 5.0


def test_on_several_replicas_keras_refuses_them():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        loss_reduction.use_keras_means()
        with pytest.raises(ValueError, match=r"Reduction\.SUM"):
            strategy.run(squared_error)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [([], True), ([1], True), ([1, 1], True), (None, True), ([None], False), ([8], False), ([None, 1], False)],
)
def test_losses_of_one_number(shape, expected):
    assert loss_reduction.is_scalar(SimpleNamespace(shape=tf.TensorShape(shape))) is expected


class OfReplicas(Ones):
    """Gives each of two replicas half of a step's examples."""

    def train(self, context, first_step=0):
        return super().train(context).map(lambda batch, share: (batch, share / context.num_replicas_in_sync))


def trained(strategy, model_class) -> tuple[list, dict[str, float]]:
    """Returns the weights and logs after three steps on batches of ones."""
    with strategy.scope():
        inputs = tf.keras.Input((1,))
        model = model_class(inputs, tf.keras.layers.Dense(1, kernel_initializer=lambda *_, **__: [[3.0]])(inputs))
        model.compile(tf.keras.optimizers.SGD(0.05), "mse")
        runner = StepRunner(factory.make(model, "f"), strategy, OfReplicas(), TrainingOptions(2))
        runner.open(0)
        runner.train(3)
        return model.get_weights(), as_floats(runner.metrics())


def two_replicas() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())


def num_replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def square(y, prediction):
    return tf.square(y - prediction)[:, 0]


# Whether they divide by the number of replicas or not, all are means over the batch.
LOSSES = {
    "undivided": lambda y, prediction, keras_loss: tf.reduce_mean(square(y, prediction)),
    "divided": lambda y, prediction, keras_loss: tf.reduce_mean(square(y, prediction)) / num_replicas(),
    "of the replica": lambda y, prediction, keras_loss: (
        tf.reduce_mean(square(y, prediction)) / tf.distribute.get_replica_context().num_replicas_in_sync
    ),
    "keras's and more": lambda y, prediction, keras_loss: (
        keras_loss() + tf.nn.scale_regularization_loss(tf.reduce_mean(tf.abs(prediction)))
    ),
    "keras's, as it is": lambda y, prediction, keras_loss: keras_loss(),
    "average": lambda y, prediction, keras_loss: tf.nn.compute_average_loss(square(y, prediction)),
    "average of the global batch": lambda y, prediction, keras_loss: tf.nn.compute_average_loss(
        square(y, prediction), global_batch_size=2 * num_replicas()
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_compute_loss_is_the_same_on_any_number_of_replicas(loss):
    class Model(tf.keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return LOSSES[loss](y, y_pred, lambda: super(Model, self).compute_loss(x, y, y_pred, sample_weight))

    alone, logs = trained(tf.distribute.get_strategy(), Model)
    together, logs_together = trained(two_replicas(), Model)
    np.testing.assert_allclose(np.concatenate(together, None), np.concatenate(alone, None), rtol=1e-6)
    assert logs_together == pytest.approx(logs)


def test_logs_that_the_model_wants_summed_over_replicas():
    class Model(tf.keras.Model):
        def train_step(self, data):
            self.distribute_reduction_method = "sum"
            return {**super().train_step(data), "answer": tf.constant(42.0) / num_replicas()}

    _, logs = trained(two_replicas(), Model)
    assert logs["answer"] == 42.0

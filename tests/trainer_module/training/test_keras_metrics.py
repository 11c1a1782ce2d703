import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.training import keras_metrics


class CountsResets(tf.keras.metrics.Mean):
    resets = 0

    def reset_state(self):
        super().reset_state()
        self.resets += 1


class OldName(tf.keras.metrics.Mean):
    def reset_states(self):
        self.total.assign(5.0)


@pytest.fixture
def strategy():
    return tf.distribute.MirroredStrategy(["CPU:0"])


def test_resetting_sums_nothing_over_replicas(strategy, monkeypatch):
    with strategy.scope():
        metrics = [tf.keras.metrics.Mean(), tf.keras.metrics.SparseCategoricalAccuracy()]
    strategy.run(lambda: [metrics[0].update_state(3.0), metrics[1].update_state([1], [[0.0, 1.0]])])
    assert [float(metric.result()) for metric in metrics] == [3.0, 1.0]

    def reduce(*arguments, **options):
        raise AssertionError("a variable is read")

    with monkeypatch.context() as patched:
        patched.setattr(strategy, "reduce", reduce)
        with pytest.raises(AssertionError, match="a variable is read"):
            metrics[0].reset_state()  # what Keras does
        keras_metrics.reset(metrics)
    assert [variable.numpy() for metric in metrics for variable in metric.variables] == [0.0] * 4


@pytest.mark.filterwarnings("ignore:Metric OldName implements")
def test_metrics_that_reset_themselves_do_so(strategy):
    with strategy.scope():
        counts, old = CountsResets(), OldName()
    strategy.run(lambda: [metric.update_state(3.0) for metric in (counts, old)])
    keras_metrics.reset([counts, old])
    assert counts.resets == 1
    assert counts.count.numpy() == 0.0
    assert (old.total.numpy(), old.count.numpy()) == (5.0, 1.0)


def test_without_a_strategy():
    metric = tf.keras.metrics.Mean()
    metric.update_state(3.0)
    keras_metrics.reset([metric])
    assert metric.count.numpy() == 0.0

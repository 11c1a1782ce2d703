import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.keras import keras_metrics


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


class Count(tf.keras.metrics.Metric):
    def __init__(self, name="count"):
        super().__init__(name=name, dtype=tf.int64)
        self.number = self.add_weight("number", shape=(), dtype=tf.int64, initializer="zeros")

    def update_state(self, values):
        self.number.assign_add(tf.size(values, tf.int64))

    def result(self):
        return self.number


@pytest.mark.parametrize(("first_replica", "parts"), [(0, [7, 0]), (2, [0, 0])])
def test_a_restored_sum_is_the_saved_one(tmp_path, monkeypatch, first_replica, parts):
    """Exactly, on the first replica, which another worker may have."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        saved, restored = Count(), Count()
    strategy.run(lambda: saved.update_state([0.0] * 3 if replica_id() == 0 else [0.0] * 4))
    path = tf.train.Checkpoint(metrics=keras_metrics.state([saved])).write(str(tmp_path / "state"))
    strategy.run(lambda: restored.update_state([0.0]))
    monkeypatch.setattr(strategy.extended, "_get_replica_id_in_sync_group", lambda local: first_replica + local)
    with strategy.scope():
        tf.train.Checkpoint(metrics=keras_metrics.state([restored])).read(path).assert_consumed()
    assert [part.numpy() for part in restored.number.values] == parts


def replica_id():
    return tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)

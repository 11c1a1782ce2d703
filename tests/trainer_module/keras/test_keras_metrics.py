import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.keras import keras_metrics


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


def test_a_metric_of_several_values():
    values = {"loss": tf.constant(0.5), "recall": tf.constant([0.5, 1.0])}
    assert keras_metrics.as_floats(values) == {"loss": 0.5, "recall_0": 0.5, "recall_1": 1.0}


def replica_id():
    return tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)

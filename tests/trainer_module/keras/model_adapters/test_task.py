import tensorflow as tf

from tfx_distribute.trainer_module.keras import keras_metrics
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.user_code.task import Task


def test_a_metric_of_a_task_may_have_several_results():
    class Both(tf.keras.metrics.Mean):
        def result(self):
            return {"mean": super().result(), "count": self.count + 0.0}

    class Counts(Task):
        def __init__(self):
            self.model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
            self.optimizer = tf.keras.optimizers.SGD()
            self.metrics = [Both("both")]

        def train_step(self, features, label):
            self.metrics[0].update_state(features)
            return tf.constant(0.5)

        eval_step = train_step

    adapter = factory.make(Counts(), "f")
    adapter.train_step(tf.constant([[1.0], [5.0]]), tf.zeros([2, 1]))
    assert keras_metrics.as_floats(adapter.metrics()) == {"loss": 0.5, "mean": 3.0, "count": 2.0}

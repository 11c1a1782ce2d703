import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras.model_adapters import factory


class ResetsItself(tf.keras.Model):
    resets = 0

    def reset_metrics(self):
        self.resets += 1


def test_a_model_that_resets_its_metrics_does_so():
    inputs = tf.keras.Input((1,))
    model = ResetsItself(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    factory.make(model, "f").reset_metrics()
    assert model.resets == 1


class OwnSteps(tf.keras.Model):
    """Has a mean of its own, as a GAN does."""

    updates_mean = True

    def __init__(self, **options):
        super().__init__(**options)
        self.mean = tf.keras.metrics.Mean("loss")

    def train_step(self, data):
        if self.updates_mean:
            self.mean.update_state(data[0])
        return {"loss": self.mean.result() if self.updates_mean else tf.reduce_mean(data[0])}

    @property
    def metrics(self):
        return [self.mean]


@pytest.mark.parametrize("updates_mean", [True, False])
def test_the_loss_of_own_steps_is_a_mean_over_examples(updates_mean):
    inputs = tf.keras.Input((1,))
    model = OwnSteps(inputs=inputs, outputs=tf.keras.layers.Dense(1)(inputs))
    model.updates_mean = updates_mean
    model.compile()
    adapter = factory.make(model, "f")
    batch = tf.zeros([2, 1]), tf.zeros([2, 1])
    adapter.prepare(batch)
    adapter.reset_metrics()
    for values in ([1.0], [2.0, 6.0]):
        adapter.train_step(tf.reshape(values, [-1, 1]), tf.zeros([len(values), 1]))
    assert float(adapter.metrics()["loss"]) == 3.0, "of all examples, and not a mean of means"


class ListsTwice(OwnSteps):
    @property
    def metrics(self):
        return [self.mean, self.mean]  # as Keras 3 does with a metric of a layer within a layer


def test_a_tracing_leaves_metrics_as_they_were():
    inputs = tf.keras.Input((1,))
    model = ListsTwice(inputs=inputs, outputs=tf.keras.layers.Dense(1)(inputs))
    model.compile()
    before = dict(vars(model.mean))
    factory.make(model, "f").prepare((tf.zeros([2, 1]), tf.zeros([2, 1])))
    assert vars(model.mean).get("result") is before.get("result")


class Extremes(tf.keras.metrics.Metric):
    """Has two results."""

    def __init__(self):
        super().__init__(name="extremes")
        self.highest = self.add_weight(name="highest", shape=(), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.highest.assign(tf.maximum(self.highest, tf.reduce_max(y_pred)))

    def result(self):
        return {"highest": self.highest + 0.0, "twice": {"highest_twice": self.highest * 2.0}}


class LogsAll(OwnSteps):
    """Logs the results of all its metrics by name, as the guide of Keras 3 does."""

    @property
    def metrics(self):
        return [self.mean, self.extremes]

    def train_step(self, data):
        self.mean.update_state(data[0])
        self.extremes.update_state(data[1], data[0])
        return {metric.name: metric.result() for metric in self.metrics}


def test_a_step_may_log_a_metric_that_has_several_results():
    inputs = tf.keras.Input((1,))
    model = LogsAll(inputs=inputs, outputs=tf.keras.layers.Dense(1)(inputs))
    model.extremes = Extremes()
    model.compile()
    adapter = factory.make(model, "f")
    adapter.prepare((tf.zeros([2, 1]), tf.zeros([2, 1])))
    adapter.reset_metrics()
    for values in ([1.0], [2.0, 6.0], [3.0]):
        adapter.train_step(tf.reshape(values, [-1, 1]), tf.zeros([len(values), 1]))
    metrics = {name: float(value) for name, value in adapter.metrics().items()}
    assert metrics == {"loss": 3.0, "highest": 6.0, "highest_twice": 12.0}, "results of metrics, and not means of them"


class Centered(tf.keras.layers.Layer):
    """Subtracts the mean over all replicas."""

    def call(self, inputs):
        replica = tf.distribute.get_replica_context()
        return inputs - replica.all_reduce(tf.distribute.ReduceOp.MEAN, tf.reduce_mean(inputs, 0))


class OfLayers(tf.keras.Model):
    def __init__(self, *layers):
        super().__init__()
        self.parts = list(layers)

    def call(self, features):
        for layer in self.parts:
            features = layer(features)
        return features


def test_a_layer_may_communicate_with_other_replicas():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = OfLayers(tf.keras.layers.Dense(2), Centered(), tf.keras.layers.Dense(1))
        model.compile("sgd", "mse", metrics=["mae"])
        adapter = factory.make(model, "f")
        adapter.prepare((tf.zeros([2, 3]), tf.zeros([2, 1])))
    assert len(model.weights) == 4


class Noting(tf.keras.layers.Layer):
    """Notes whether it is called for one replica."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def call(self, inputs):
        self.calls.append(tf.distribute.get_replica_context() is not None)
        return inputs


def test_a_model_is_not_traced_for_each_replica():
    """A trace for each of many GPUs takes as many times longer."""
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        noting = Noting()
        model = OfLayers(noting, tf.keras.layers.Dense(1))
        model.compile("sgd", "mse")
        factory.make(model, "f").prepare((tf.zeros([2, 3]), tf.zeros([2, 1])))
    assert noting.calls
    assert not any(noting.calls)


def test_anything_but_a_compiled_model_or_a_task_is_refused():
    inputs = tf.keras.Input((1,))
    for made, message in (
        (tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs)), "m.f returned a model that is not compiled"),
        (3, "m.f returned builtins.int; return a compiled Keras 2 model, or a task with train_step"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            factory.make(made, "m.f")

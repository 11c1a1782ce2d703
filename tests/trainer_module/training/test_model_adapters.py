import json

import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.training import gradients, model_adapters
from tfx_distribute.trainer_module.training.base_model import checkpoints, names
from tfx_distribute.trainer_module.user_code.task import Task


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
        model_adapters.reset(metrics)
    assert [variable.numpy() for metric in metrics for variable in metric.variables] == [0.0] * 4


@pytest.mark.filterwarnings("ignore:Metric OldName implements")
def test_metrics_that_reset_themselves_do_so(strategy):
    with strategy.scope():
        counts, old = CountsResets(), OldName()
    strategy.run(lambda: [metric.update_state(3.0) for metric in (counts, old)])
    model_adapters.reset([counts, old])
    assert counts.resets == 1
    assert counts.count.numpy() == 0.0
    assert (old.total.numpy(), old.count.numpy()) == (5.0, 1.0)


class ResetsItself(tf.keras.Model):
    resets = 0

    def reset_metrics(self):
        self.resets += 1


def test_a_model_that_resets_its_metrics_does_so():
    inputs = tf.keras.Input((1,))
    model = ResetsItself(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    model_adapters.make(model, "f").reset_metrics()
    assert model.resets == 1


def test_without_a_strategy():
    metric = tf.keras.metrics.Mean()
    metric.update_state(3.0)
    model_adapters.reset([metric])
    assert metric.count.numpy() == 0.0


class OwnSteps(tf.keras.Model):
    """Has optimizers and a mean of its own, as a GAN does."""

    updates_mean = True

    def __init__(self, optimizers, **options):
        super().__init__(**options)
        self.own = optimizers
        self.mean = tf.keras.metrics.Mean("loss")

    def train_step(self, data):
        if self.updates_mean:
            self.mean.update_state(data[0])
        return {"loss": self.mean.result() if self.updates_mean else tf.reduce_mean(data[0])}

    @property
    def metrics(self):
        return [self.mean]


@pytest.mark.parametrize("collect", [list, lambda pair: dict(zip("ab", pair, strict=True)), lambda pair: pair[0]])
def test_updates_of_a_models_own_optimizers_count(collect):
    pair = tf.keras.optimizers.SGD(), tf.keras.optimizers.SGD()
    inputs = tf.keras.Input((1,))
    model = OwnSteps(collect(pair), inputs=inputs, outputs=tf.keras.layers.Dense(1)(inputs))
    model.compile()
    adapter = model_adapters.make(model, "f")
    assert int(adapter.updates()) == 0
    pair[0].iterations.assign_add(3)
    assert int(adapter.updates()) == 3


def test_optimizers_of_a_task_of_its_own():
    """One that a loss scale wraps is one optimizer."""

    class Pair(Task):
        def __init__(self):
            self.model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
            self.optimizer = tf.keras.optimizers.SGD()
            self.critics = []

        def train_step(self, features, label):
            return tf.constant(0.0)

        eval_step = train_step

    task = Pair()
    task.model.compile(tf.keras.mixed_precision.LossScaleOptimizer(task.optimizer))
    adapter = model_adapters.make(task, "f")
    assert len(adapter.optimizers()) == 1
    task.critics.append(tf.keras.optimizers.SGD())
    optimizers = adapter.optimizers()
    assert len(optimizers) == 2
    gradients.set_global_clipnorm(optimizers, 0.0)
    with pytest.raises(ConfigurationError, match="global_clipnorm: the model has 2 optimizers"):
        gradients.set_global_clipnorm(optimizers, 1.0)


@pytest.mark.parametrize("updates_mean", [True, False])
def test_the_loss_of_own_steps_is_a_mean_over_examples(updates_mean):
    inputs = tf.keras.Input((1,))
    model = OwnSteps([], inputs=inputs, outputs=tf.keras.layers.Dense(1)(inputs))
    model.updates_mean = updates_mean
    model.compile()
    adapter = model_adapters.make(model, "f")
    batch = tf.zeros([2, 1]), tf.zeros([2, 1])
    adapter.prepare(batch)
    adapter.reset_metrics()
    for values in ([1.0], [2.0, 6.0]):
        adapter.train_step(tf.reshape(values, [-1, 1]), tf.zeros([len(values), 1]))
    assert float(adapter.metrics()["loss"]) == 3.0, "of all examples, and not a mean of means"


class NoCall(tf.keras.Model):
    pass


class NoCallTask(Task):
    train_step = eval_step = lambda self, features, label: 0.0

    def __init__(self):
        self.model, self.optimizer = NoCall(), tf.keras.optimizers.SGD()


def test_a_model_without_call_could_not_be_served():
    compiled = NoCall()
    compiled.compile()
    for returned in (compiled, NoCallTask()):
        with pytest.raises(
            ConfigurationError, match=r"^module: the model NoCall has no call.*write def call\(self, features\)"
        ):
            model_adapters.make(returned, "f")


class ListsTwice(OwnSteps):
    @property
    def metrics(self):
        return [self.mean, self.mean]  # as Keras 3 does with a metric of a layer within a layer


def test_a_tracing_leaves_metrics_as_they_were():
    inputs = tf.keras.Input((1,))
    model = ListsTwice([], inputs=inputs, outputs=tf.keras.layers.Dense(1)(inputs))
    model.compile()
    before = dict(vars(model.mean))
    model_adapters.make(model, "f").prepare((tf.zeros([2, 1]), tf.zeros([2, 1])))
    assert vars(model.mean).get("result") is before.get("result")


def test_vocabularies_are_no_weights(tmp_path):
    lookup = tf.keras.layers.StringLookup()
    lookup.adapt(["a", "b"])
    layers = [tf.keras.Input((1,), dtype=tf.string), lookup, tf.keras.layers.Embedding(4, 2, name="words")]
    model = tf.keras.Sequential(layers)
    assert [names.path_of(weight) for weight in names.weights_of(model)] == ["words/embeddings"]
    model.save(tmp_path / "model", save_format="tf")
    checkpoints.write_paths(model, str(tmp_path / "model"))
    written = json.loads((tmp_path / "model" / checkpoints.PATHS_FILE).read_text())
    assert list(written.values()) == ["words/embeddings"]
    np.testing.assert_array_equal(tf.saved_model.load(tmp_path / "model")(tf.constant([["b"]])), model(tf.constant([["b"]])))

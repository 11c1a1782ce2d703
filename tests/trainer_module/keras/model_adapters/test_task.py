"""Tests tasks, and that their saved state has everything that steps change."""

import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.keras import keras_metrics
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.keras.model_adapters import task as task_adapter
from tfx_distribute.trainer_module.user_code.task import Task


class Teacher(Task):
    """Trains a model after a teacher, which is built in the first step."""

    def __init__(self):
        self.model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        self.optimizer = tf.keras.optimizers.SGD(0.1)
        self.networks = {"teacher": [tf.keras.layers.Dense(1)], 1: None}
        self.center = tf.Variable(0.0, trainable=False)
        self.noise = tf.random.Generator.from_seed(1)
        self.seen = tf.keras.metrics.Mean("seen")  # over all epochs
        self.accuracy = tf.keras.metrics.Mean("accuracy")
        self.metrics = [self.accuracy]
        self.dataset = tf.data.Dataset.range(3)
        self.iterator, self.rate = iter(self.dataset), 0.5

    def train_step(self, features, label):
        scores, targets = self.model(features), self.networks["teacher"][0](features)
        for old, new in zip(self.networks["teacher"][0].variables, self.model.variables, strict=True):
            old.assign(0.5 * old + 0.5 * new)
        self.center.assign_add(1.0)
        self.seen.update_state(scores)
        return tf.reduce_mean((scores - targets + self.noise.normal([])) ** 2)

    eval_step = train_step


class TrackedTeacher(Teacher, tf.Module):
    """A task may also be a module of TensorFlow's."""


def prepared(kind):
    tf.keras.utils.set_random_seed(1)
    task = kind()
    adapter = factory.make(task, "build_model")
    adapter.prepare((tf.zeros([1, 2]), tf.zeros([1, 1])))
    return task, adapter


def values(task):
    teacher = task.networks["teacher"][0]
    variables = [*task.model.variables, *teacher.variables, task.center, task.noise.state, *task.seen.variables]
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize("kind", [Teacher, TrackedTeacher])
def test_everything_that_the_steps_change_comes_back(kind, tmp_path):
    task, adapter = prepared(kind)
    for _ in range(3):
        adapter.train_step(tf.ones([4, 2]), tf.ones([4, 1]))
    tf.train.Checkpoint(**adapter.state()).write(f"{tmp_path}/state")
    again, other_adapter = prepared(kind)
    assert any(np.any(one != other) for one, other in zip(values(again), values(task), strict=True))
    tf.train.Checkpoint(**other_adapter.state()).read(f"{tmp_path}/state").assert_existing_objects_matched()
    for one, other in zip(values(again), values(task), strict=True):
        np.testing.assert_array_equal(one, other)
    assert float(again.center) == 3.0


@pytest.mark.parametrize("kind", [Teacher, TrackedTeacher])
def test_names_do_not_repeat_what_is_saved_anyway(kind):
    task, adapter = prepared(kind)
    assert list(adapter.state()["task"]) == ["center", "networks/teacher/0", "noise", "seen"]
    assert task_adapter._find_parts(task, [task.model, task.optimizer, task.accuracy, task.noise, task.seen]).keys() == {
        "center",
        "networks/teacher/0",
    }


def test_a_task_with_nothing_of_its_own_adds_nothing():
    """Its states are those of before."""

    class Plain(Task):
        def __init__(self):
            self.model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
            self.optimizer = tf.keras.optimizers.SGD(0.1)
            self.metrics = [tf.keras.metrics.Mean("seen")]

        def train_step(self, features, label):
            return tf.reduce_mean(self.model(features))

        eval_step = train_step

    assert "task" not in prepared(Plain)[1].state()


def test_distributed_variables_are_not_read_for_it(monkeypatch):
    """That takes all workers, and only some of them look for the state at a save."""
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        model.compile("adam", "mse", metrics=["mae"])
        compiled, (_, teacher) = factory.make(model, "build_model"), prepared(Teacher)
        compiled.prepare((tf.zeros([1, 2]), tf.zeros([1, 1])))
    metric_variables = compiled.model.metrics[0].variables
    kind = type(metric_variables[0])
    assert kind.__name__ == "SyncOnReadVariable"
    monkeypatch.setattr(kind, "_get_cross_replica", lambda self: pytest.fail(f"{self.name} is read"))
    assert compiled.state()
    assert teacher.state()


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

"""Tests that the saved state has everything that the steps of a training change."""

import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable

from tfx_distribute.trainer_module.training import gradients
from tfx_distribute.trainer_module.training.model_adapters import factory, own_parts
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
    assert own_parts.find({"": task}, [task.model, task.optimizer, task.accuracy, task.noise, task.seen]).keys() == {
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


def test_what_is_built_in_the_first_step():
    dense, optimizer = tf.keras.layers.Dense(1), tf.keras.optimizers.Adam()
    model = tf.keras.Sequential([dense])
    assert own_parts.are_built({"variable": tf.Variable(1.0), "noise": tf.random.Generator.from_seed(1)})
    assert not own_parts.are_built({"layer": dense})
    assert not own_parts.are_built({"model": model})
    assert not own_parts.are_built({"optimizer": optimizer})
    model(tf.ones([1, 2]))
    optimizer.build(model.trainable_variables)
    assert own_parts.are_built({"layer": dense, "model": model, "optimizer": optimizer})


def test_a_container_may_contain_itself():
    task, variable = Task(), tf.Variable(0.0)
    task.parts = {"list": [variable]}
    task.parts["again"] = task.parts
    assert own_parts.find({"": task}, []) == {"parts/list/0": variable}


class Running(tf.keras.losses.Loss):
    """Counts in a variable of its own."""

    def __init__(self):
        super().__init__()
        self.mean = tf.Variable(1.0, trainable=False)

    def call(self, y_true, y_pred):
        return (y_true - y_pred) ** 2 * self.mean


class Halving(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self):
        self.rate = tf.Variable(1.0, trainable=False)

    def __call__(self, step):
        return tf.convert_to_tensor(self.rate)


def compiled(loss, variable, optimizer_class=tf.keras.optimizers.SGD):
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
    schedule = Halving()
    model.compile(optimizer_class(schedule), loss=loss, loss_weights=[variable])
    adapter = factory.make(model, "build_model")
    adapter.prepare((tf.zeros([1, 2]), tf.zeros([1, 1])))
    return adapter, schedule


def test_variables_of_a_loss_its_weight_and_a_schedule_come_back(tmp_path):
    def make():
        running, factor, weight = Running(), tf.Variable(1.0, trainable=False), tf.Variable(1.0, trainable=False)
        adapter, schedule = compiled(lambda truth, prediction: factor * running.call(truth, prediction), weight)
        return adapter, [running.mean, factor, weight, schedule.rate]

    adapter, variables = make()
    for number, variable in enumerate(variables):
        variable.assign(number + 2.0)
    tf.train.Checkpoint(**adapter.state()).write(f"{tmp_path}/state")
    other, restored = make()
    tf.train.Checkpoint(**other.state()).read(f"{tmp_path}/state").assert_existing_objects_matched()
    assert [float(variable) for variable in restored] == [2.0, 3.0, 4.0, 5.0]


class LegacyTask(Task):
    def __init__(self, optimizer_class):
        self.model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        self.schedule = Halving()
        self.optimizer = optimizer_class(self.schedule)

    def train_step(self, features, label):
        return tf.reduce_mean(self.model(features))

    eval_step = train_step


def legacy_task(optimizer_class):
    adapter = factory.make(LegacyTask(optimizer_class), "build_model")
    adapter.prepare((tf.zeros([1, 2]), tf.zeros([1, 1])))
    return adapter


def legacy_model(optimizer_class):
    return compiled("mse", tf.Variable(1.0, trainable=False), optimizer_class)[0]


@pytest.mark.parametrize(("make", "key"), [(legacy_model, "parts"), (legacy_task, "task")])
def test_the_state_of_a_legacy_optimizer_fits_any_process(make, key, tmp_path):
    """Its slots are called by a counter of all variables of the process."""

    def prepare():
        adapter = make(tf.keras.optimizers.legacy.Adam)
        gradients.prepare(adapter.optimizer, adapter.model.trainable_variables)
        return adapter

    adapter = prepare()
    variables = adapter.model.trainable_variables
    adapter.optimizer.apply_gradients([(tf.ones_like(each), each) for each in variables])
    tf.train.Checkpoint(**adapter.state()).write(f"{tmp_path}/state")
    kept = [tf.Variable(0.0, name="dense/kernel") for _ in range(3)]
    other = prepare()
    assert list(other.state()[key]) == list(adapter.state()[key])
    assert not any("slots" in path for path in other.state()[key])
    tf.train.Checkpoint(**other.state()).read(f"{tmp_path}/state").assert_existing_objects_matched()
    for restored, saved in zip(other.optimizer.weights, adapter.optimizer.weights, strict=True):
        np.testing.assert_array_equal(restored, saved)
    del kept


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
    for adapter in (compiled, teacher):
        assert adapter.state()
        assert adapter.optimizers()


def test_a_compiled_model_with_nothing_of_its_own_adds_nothing():
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile("adam", "mse", metrics=["mae"])
    adapter = factory.make(model, "build_model")
    adapter.prepare((tf.zeros([1, 2]), tf.zeros([1, 1])))
    assert "parts" not in adapter.state()


KERAS_3 = """
import os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "0"
import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable
from tfx_distribute.trainer_module.training.model_adapters import factory

class Listed(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.counts = tf.keras.layers.Dense(1), [tf.Variable(0.0, trainable=False)]
        self.own = {"dense": tf.keras.optimizers.Adam(0.1)}

    def call(self, features):
        return self.dense(features)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0]) - data[1])
        variables = self.dense.trainable_variables
        self.own["dense"].apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.counts[0].assign_add(1.0)
        return {"loss": loss}

def make():
    model = Listed()
    model.compile(jit_compile=False)
    adapter = factory.make(model, "build_model")
    adapter.prepare((tf.ones([4, 2]), tf.ones([4, 1])))
    return model, adapter

_, adapter = make()
for _ in range(5):
    adapter.train_step(tf.ones([4, 2]), tf.ones([4, 1]))
tf.train.Checkpoint(**adapter.state()).write(f"{sys.argv[1]}/state")
model, adapter = make()
tf.train.Checkpoint(**adapter.state()).read(f"{sys.argv[1]}/state").assert_existing_objects_matched()
print(float(model.counts[0]), int(model.own["dense"].iterations))
"""


def test_what_a_keras_3_model_keeps_in_lists_and_dictionaries_comes_back(tmp_path):
    words = [sys.executable, "-c", KERAS_3, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "5.0 5\n", done.stderr


def test_parts_of_a_divided_variable_are_saved_with_it():
    """An optimizer's slots are listed in parts, for each parameter server."""
    table = ShardedVariable([tf.Variable([1.0, 2.0]), tf.Variable([3.0])])
    other = tf.Variable(0.0)
    owner = types.SimpleNamespace(slots=[*table.variables, other])
    assert own_parts.find_unsaved({"": owner}, {"table": table}) == {"slots/2": other}

"""Tests the times that are measured inside a TensorFlow call."""

import contextlib
import time
from dataclasses import dataclass

import numpy as np
import pytest
import tensorflow as tf
from ones import Ones, model_with

from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.loop import step_timing
from tfx_distribute.trainer_module.loop.coordinator_steps import CoordinatorStepRunner
from tfx_distribute.trainer_module.loop.step_runner import StepRunner
from tfx_distribute.trainer_module.loop.step_timing import CallTime

STEPS = 160


class Slow(Ones):
    """Yields batches that take some milliseconds to make."""

    def train(self, context, first_step=0):
        def work(batch, share):
            seed = tf.cast([share, share], tf.int32)
            matrix = tf.random.stateless_uniform([500, 500], seed)
            for _ in range(4):
                matrix = tf.matmul(matrix, matrix) / 1000.0
            return batch, share + 0.0 * matrix[0, 0]

        return super().train(context, first_step).map(work)


@pytest.mark.parametrize("behind_host", [False, True])
def test_waiting_for_input_is_told_from_computing(monkeypatch, behind_host):
    """On an accelerator, one of sixteen steps stands for all."""
    monkeypatch.setattr(step_timing, "computes_behind_host", lambda: behind_host)
    adapter = factory.make(model_with(tf.keras.optimizers.SGD(0.1)), "f")
    step_runner = StepRunner(adapter, tf.distribute.get_strategy(), Slow(), TrainingOptions(2))
    step_runner.open(0)
    began = time.time()
    _, first = step_runner.train(1)
    assert first.begin - began > 0.01, "the first call is traced before its first step"
    began = time.time()
    _, call_time = step_runner.train(STEPS)
    elapsed = time.time() - began
    # Ten steps that stand for all may be quicker or slower than most.
    low, high = (0.05, 10.0) if behind_host else (0.3, 1.0)
    assert low * elapsed < call_time.input < high * elapsed
    assert 0.0 <= call_time.begin - began <= elapsed
    assert call_time.wait_for_peers is None, "there is one replica"


def test_a_sample_stands_for_no_more_steps_than_there_are(monkeypatch):
    monkeypatch.setattr(step_timing, "computes_behind_host", lambda: True)
    adapter = factory.make(model_with(tf.keras.optimizers.SGD(0.1)), "f")
    step_runner = StepRunner(adapter, tf.distribute.get_strategy(), Slow(), TrainingOptions(2))
    step_runner.open(0)
    step_runner.train(1)
    began = time.monotonic()
    seconds = sum(step_runner.train(1)[1].input for _ in range(20))
    assert 0.0 < seconds < time.monotonic() - began
    weights = {steps: float(step_timing.weight_of_measured(tf.constant(steps))) for steps in (1, 15, 16, 17, 32)}
    assert weights == {1: 1.0, 15: 15.0, 16: 16.0, 17: 8.5, 32: 16.0}


def test_steps_that_are_not_measured_do_not_wait_for_the_device(monkeypatch):
    monkeypatch.setattr(step_timing, "computes_behind_host", lambda: True)
    adapter = factory.make(model_with(tf.keras.optimizers.SGD(0.1)), "f")
    step_runner = StepRunner(adapter, tf.distribute.get_strategy(), Ones(), TrainingOptions(2))
    step_runner.open(0)
    train = step_runner._train_function.get_concrete_function(tf.constant(1))
    bodies = [
        function for function in train.graph.as_graph_def().library.function if "while_body" in function.signature.name
    ]
    (group,) = [body for body in bodies if any(node.op == "While" for node in body.node_def)]
    (step,) = [body for body in bodies if any(node.op == "IteratorGetNext" for node in body.node_def)]
    assert [node.op for node in group.node_def].count("Timestamp") == 1, "when the devices have computed the steps before"
    assert [node.op for node in step.node_def].count("Timestamp") == 2, "before the batch and after it"
    (steps,) = [node for node in group.node_def if node.op == "While"]
    (groups,) = [node for node in train.graph.as_graph_def().node if node.op == "While"]
    of_loops = [*steps.attr["T"].list.type, *groups.attr["T"].list.type]
    assert tf.float64.as_datatype_enum not in of_loops, "times would go to the device in each step, and back"
    assert not {"If", "StatelessIf"} & {node.op for node in step.node_def}, "which take long in a small step"


class CoordinatorOfOne:
    """Runs at once what a coordinator schedules on its one worker."""

    def schedule(self, function, args):
        return CoordinatorOfOne.Result(function(*args))

    def join(self):
        pass

    @dataclass
    class Result:
        value: tuple

        def fetch(self):
            return self.value


def test_the_clock_of_a_worker_is_not_compared_with_that_of_its_coordinator():
    step_runner = object.__new__(CoordinatorStepRunner)
    step_runner._coordinator, step_runner._num_workers, step_runner._step = CoordinatorOfOne(), 1, 0
    step_runner._warming_up = contextlib.nullcontext
    step_runner._train_part_function = lambda *_: (0.25, (time.time() + 0.3, 0.5, 0.0))
    assert step_runner.train(10_000) == (0.25, CallTime(begin=0.0, input=2.0))


def test_the_same_weights_however_they_are_timed(monkeypatch):
    weights = []
    for behind_host in (False, True):
        monkeypatch.setattr(step_timing, "computes_behind_host", lambda answer=behind_host: answer)
        tf.keras.utils.set_random_seed(1)
        model = model_with(tf.keras.optimizers.Adam(0.1))
        step_runner = StepRunner(factory.make(model, "f"), tf.distribute.get_strategy(), Ones(), TrainingOptions(2))
        step_runner.open(0)
        step_runner.train(20)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)

"""Tests the times that are measured inside a TensorFlow call."""

import time

import numpy as np
import pytest
import tensorflow as tf
from ones import Ones, model_with

from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.loop import step_timing
from tfx_distribute.trainer_module.loop.step_runner import StepRunner

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

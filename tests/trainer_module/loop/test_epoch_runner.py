"""Tests what happens between training steps, without any."""

import contextlib
from unittest.mock import Mock

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import PreemptedError
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.liveness import preemption
from tfx_distribute.trainer_module.loop.epoch_runner import EpochRunner, StepCounter
from tfx_distribute.trainer_module.loop.peers import Peers
from tfx_distribute.trainer_module.loop.step_timing import CallTime
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter
from tfx_distribute.trainer_module.state.checkpoint import Position


class StopAfter(tf.keras.callbacks.Callback):
    """Ends the training in a batch hook."""

    def __init__(self, steps):
        super().__init__()
        self._steps = steps

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch + 1 == self._steps


@pytest.fixture
def runner(monkeypatch):
    """Returns a runner of steps that do nothing, and what it saves; it saves always."""
    monkeypatch.setattr(preemption, "preemption_requested", lambda: False)
    model = tf.keras.Sequential()
    model.stop_training = False
    steps = Mock(call_seconds=0.5)
    steps.train.return_value = (0.5, CallTime())
    counter = Mock(step=0)
    counter.meter.spending = lambda name: contextlib.nullcontext()
    counter.advance = lambda count, loss: setattr(counter, "step", counter.step + count)
    profiler = Mock()
    profiler.steps_until_end.return_value = 0
    checkpoints = Mock(remark="")
    checkpoints.steps_until_due.return_value = 1 << 62
    checkpoints.due.return_value = True
    callbacks = tf.keras.callbacks.CallbackList([StopAfter(3)], model=model)
    made = EpochRunner(steps, Peers(tf.distribute.get_strategy()), 1, callbacks, counter, profiler, checkpoints)
    return made, lambda: [call.args[0] for call in checkpoints.save.call_args_list]


def test_the_step_at_which_a_batch_hook_stops_the_training_is_not_saved(runner):
    """A training that resumed from there would go on behind it."""
    run, saved = runner
    run.run(0, 0, 10)
    assert saved() == [Position(0, 1, 1), Position(0, 2, 2)]


def test_a_process_that_is_asked_to_stop_at_that_step(runner, monkeypatch):
    """The training ends; if that takes too long, the last save counts."""
    run, saved = runner
    monkeypatch.setattr(preemption, "preemption_requested", lambda: len(saved()) == 2)
    run.run(0, 0, 10)
    assert run.ends_training(0, is_last=False, wants_times=False) == (True, True)
    assert len(saved()) == 2


def test_a_process_that_is_asked_to_stop_at_another_step(runner, monkeypatch):
    run, saved = runner
    monkeypatch.setattr(preemption, "preemption_requested", lambda: len(saved()) == 1)
    with pytest.raises(PreemptedError, match="saved after training step 2"):
        run.run(0, 0, 10)
    assert len(saved()) == 2


class Loss:
    """Counts how often it is waited for."""

    def __init__(self):
        self.waits = 0

    def __float__(self):
        self.waits += 1
        return 0.5


@pytest.mark.parametrize(("hooked", "profiled", "waits"), [(False, False, 2), (True, False, 6), (False, True, 6)])
def test_devices_are_waited_for_where_someone_looks_at_them(runner, hooked, profiled, waits):
    """Otherwise they would be idle between short calls."""
    run, _ = runner
    loss = Loss()
    run._step_runner.train.return_value = (loss, CallTime())
    run._profiler.steps_until_end.return_value = 9 if profiled else None
    run._stretch, run._step_runner.call_seconds = 3, 1e9  # so the next stretch has the rest
    if not hooked:
        run._callbacks = tf.keras.callbacks.CallbackList([], model=run._callbacks.model)
    else:
        run._callbacks.callbacks[0]._steps = 7
    run.run(0, 0, 6)
    assert run._step_runner.train.call_count == 6
    assert loss.waits == waits


def test_an_error_is_reported_without_the_rate(tmp_path):
    """It may be on a parameter server that the error is about."""
    plan = make_plan(TrainingOptions(2, epochs=1), 2, 1)
    counter = StepCounter(Reporter(str(tmp_path / "progress")), plan, 2, pytest.fail)
    with pytest.raises(PreemptedError), counter.reporting_step_on_error():
        raise PreemptedError("saved")
    assert Progress.from_json((tmp_path / "progress").read_text()).phase == "train"

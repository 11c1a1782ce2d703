"""Tests faults of real clusters, whose processes die, hang or are asked to stop.

No fault loses more than a save interval, or leaves anything behind.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import faults
import isolated
import numpy as np
import pytest
from faults import (
    EVERY,
    STRATEGIES,
    Strike,
    can_be_struck,
    continued,
    fault,
    saves_before,
    several,
    weights,
)
from running import children

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import FaultTolerance, TrainingOptions, UserModule

pytestmark = pytest.mark.e2e

LONG = {
    "training_options": TrainingOptions(32, epochs=20),
    "fault_tolerance": FaultTolerance(save_checkpoints_steps=100, heartbeat_timeout_secs=3),
}


@pytest.fixture
def faulty(cluster, tmp_path, monkeypatch):
    """Makes a cluster with faults; only one model and its state may be left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    made = can_be_struck(cluster)
    yield made
    assert children(made.server.pid) == []
    assert list(temporary.iterdir()) == []
    assert not [*made.folder.glob("*.partial"), *made.folder.glob("tmp-*")]


@pytest.mark.timeout(400)  # five restarts
def test_no_fault_costs_more_than_an_interval(faulty):
    """The result is the same as without the faults.

    A chief is killed in a save, so that the one before counts. Then a worker is killed,
    is asked to stop, at which all stop without losing a step, and hangs. The oracle
    compares what other strategies restore,
    tests/trainer_module/state/base_model/test_strategies.py kills the only process, and
    tests/components/launchers/local/test_processes.py has a chief that hangs.
    """
    faulty.exporting()
    options = TrainingOptions(32, epochs=4)
    expected = faulty.train(STRATEGIES["multi_worker_mirrored"], options)
    expected_weights = weights(faulty)
    shutil.rmtree(faulty.job.outputs.checkpoint_dir)
    shutil.rmtree(faulty.model)
    planned = [
        fault(faulty, "kill", "chief-0", fault_save=2),
        fault(faulty, "kill", "worker-0", fault_step=37),
        fault(faulty, "terminate", "worker-0", fault_step=57),
        fault(faulty, "stop", "worker-0", fault_step=77),
    ]
    result = faulty.train(STRATEGIES["multi_worker_mirrored"], options, hparams=several(faulty, planned))
    after_save, after_kill, *after_stop, after_hang = continued(faulty)
    assert (after_save, after_stop) == (EVERY, [57])
    assert after_kill in saves_before(37)
    assert after_hang in saves_before(77)
    messages = faulty.messages()
    assert any("asked to stop; saved after training step 57; restart 1 of 3" in message for message in messages)
    assert any("worker 0 failed (it gave no sign of life for " in message for message in messages), messages
    assert result.train_steps == expected.train_steps
    assert result.metrics == pytest.approx(expected.metrics, rel=1e-6)  # sums were divided among the replicas anew
    for own, other in zip(weights(faulty), expected_weights, strict=True):
        np.testing.assert_array_equal(own, other)


DIES_BETWEEN_EPOCHS = """
import os, signal, time
import tensorflow as tf
from model import build_model

class Dies(tf.keras.callbacks.Callback):
    def __init__(self, file):
        super().__init__()
        self._file = file

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and not os.path.exists(self._file):
            open(self._file, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_end(self, epoch, logs=None):
        time.sleep(1.1)  # so that a save is due between two epochs

def callbacks(context):
    decays = tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    return [decays, Dies(context.hparams["file"])]
"""


def test_state_between_epochs_is_that_before_the_hooks_of_the_next(faulty):
    """The learning rate decays once at the beginning of each epoch, resumed or not."""
    (faulty.folder / "dies.py").write_text(DIES_BETWEEN_EPOCHS)
    module = UserModule("dies.build_model", (str(faulty.folder), *faulty.job.module.search_path))
    faulty.exporting()
    last_weights = []
    for file in (str(faulty.folder), str(faulty.folder / "died")):  # the first one exists
        shutil.rmtree(faulty.job.outputs.checkpoint_dir, ignore_errors=True)
        faulty.train(
            STRATEGIES["default"],
            TrainingOptions(64, epochs=3),
            module=module,
            hparams={**faulty.job.hparams, "file": file},
            fault_tolerance=FaultTolerance(save_checkpoints_secs=1, heartbeat_timeout_secs=3),
        )
        last_weights.append(weights(faulty))
        shutil.rmtree(faulty.model)
    assert continued(faulty) == [44]
    for one, other in zip(*last_weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_processes_that_were_suspended_together_go_on(faulty):
    """With a timeout of two seconds, a process counts as lost after ten."""
    suspended = []

    def suspend(task, progress):
        if progress.step >= 100 and not suspended:
            suspended.extend(children(faulty.server.pid))
            for pid in suspended:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(5)
            for pid in suspended:
                os.kill(pid, signal.SIGCONT)

    changes = {**LONG, "fault_tolerance": FaultTolerance(save_checkpoints_steps=100, heartbeat_timeout_secs=2)}
    result = faulty.train(STRATEGIES["multi_worker_mirrored"], **changes, on_progress=suspend)
    assert len(suspended) == 2
    assert faulty.messages() == []
    assert result.train_steps == 20 * 22


SLEEP = "        time.sleep(10**6)"
HANGS = Path(faults.__file__).with_name("stuck.py").read_text().splitlines().index(SLEEP) + 1


def test_process_that_makes_no_progress_is_named(faulty):
    """The process gives signs of life all the time, and its peers wait for it."""
    where = rf"worker 0\b.* in build_model \(stuck.py, line {HANGS}\)"
    module = UserModule("stuck.build_model", faulty.job.module.search_path)
    hparams = {**faulty.job.hparams, "stuck_task": "worker-0"}
    fault_tolerance = FaultTolerance(progress_timeout_secs=6, max_restarts=0)
    with pytest.raises(TrainingError, match=f"{where}; if it needs more time, write a larger progress_timeout_secs"):
        faulty.train(STRATEGIES["multi_worker_mirrored"], module=module, hparams=hparams, fault_tolerance=fault_tolerance)
    (waiting, *_) = faulty.messages()
    assert re.search(f"waiting for {where} for [345] s", waiting)


@pytest.mark.timeout(400)  # three restarts
def test_loss_of_processes_with_parameter_servers(faulty):
    """Training continues without a worker; else, from the last save."""
    strikes = [
        Strike(faulty, number, step, task)
        for number, step, task in (
            (signal.SIGSTOP, 100, "worker-0"),
            (signal.SIGKILL, 300, "ps-0"),
            (signal.SIGKILL, 500, "chief-0"),
        )
    ]

    def strike(task, progress):
        for each in strikes:
            each(task, progress)

    result = faulty.train(STRATEGIES["parameter_server"], **LONG, on_progress=strike)
    assert all(each.pids for each in strikes)
    assert result.train_steps == 20 * 44
    assert result.metrics["val_accuracy"] > 0.9
    after_server, after_coordinator = continued(faulty)
    assert after_server >= 200
    assert after_coordinator >= 400
    assert len([message for message in faulty.messages() if "restart 1 of 3" in message]) == 3


def test_another_strategy_takes_up_what_it_can(faulty):
    """Two replicas in one process may take over from two processes.

    One replica may not, since it would have other batches.
    """
    interrupted = []

    def interrupt(task, progress):
        if progress.step > 100 and not interrupted:
            interrupted.append(progress.step)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        faulty.train(STRATEGIES["multi_worker_mirrored"], **LONG, on_progress=interrupt)
    (saved,) = [message for message in faulty.messages() if "saved after training step" in message]
    state = Path(faulty.job.outputs.checkpoint_dir)
    shutil.copytree(state, faulty.folder / "copy")
    faulty.train(STRATEGIES["default"], **LONG)
    assert [message for message in faulty.messages() if "from scratch" in message] == [
        "starts from scratch: the saved state was made with global_batch_size=64 then, 32 now; "
        "steps_per_epoch=22 then, 44 now; it is kept"
    ]
    shutil.rmtree(state)
    (faulty.folder / "copy").rename(state)
    faulty.train(STRATEGIES["mirrored"], **LONG)
    assert continued(faulty) == [int(saved.rpartition(" ")[2])]


UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


def test_network_between_workers_is_cut_while_strangers_could_take_the_training_over(tmp_path):
    """The only sign that the other is gone is that its heartbeats are missing.

    The dynamic linker only prints a line if it cannot load the library that keeps
    strangers out, so the process has to check by itself.
    """
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"], check=False).returncode:
        pytest.skip("this machine allows no namespaces")
    words = [*UNSHARE, sys.executable, isolated.__file__, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["train_steps"] == 12 * 22
    warning, *messages = found["messages"]
    assert any("has lost" in message and "restart 1 of 3" in message for message in messages)
    assert len(found["continued"]) == 1
    assert warning.startswith("WARNING: Anyone who can reach this machine over the network can take over this training")
    assert "cannot be preloaded" in (tmp_path / "log").read_text()

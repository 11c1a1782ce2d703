"""Tests how hanging processes are handled, with real ones and without TensorFlow."""

import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import wait_until

from tfx_distribute.components.launchers.local import processes as processes_lib
from tfx_distribute.components.launchers.local import silence as silence_lib
from tfx_distribute.components.launchers.local.processes import LostError, Process, Processes
from tfx_distribute.components.launchers.local.silence import SilenceMonitor
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask


class Children:
    """Starts and ends Python programs as the fork server does training processes."""

    def __init__(self, program):
        self._program = program
        self._answers = queue.Queue()
        self.process = None

    def start(self, task, job, log, environment, imports_tensorflow):
        self.process = subprocess.Popen([sys.executable, "-c", self._program], env={**os.environ, **environment})
        self._answers.put({"started": task, "pid": self.process.pid})

    def signal(self, task, number):
        self.process.send_signal(number)

    def next_answer(self, timeout):
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            status = self.process.poll()
            if status is None:
                raise
            return {"ended": "chief-0", "pid": self.process.pid, "status": status}

    def close(self):
        self.process.kill()
        self.process.wait(timeout=20)


class Shells:
    """Starts and ends shell scripts, one for each task, as the fork server does."""

    def __init__(self, scripts):
        self._scripts, self._answers = scripts, []
        self._running = {}

    def start(self, task, job, log, environment, imports_tensorflow):
        self._running[task] = subprocess.Popen(["/bin/sh", "-c", self._scripts[task]], start_new_session=True)
        self._answers.append({"started": task, "pid": self._running[task].pid})

    def signal(self, task, number):
        if task in self._running:
            os.killpg(self._running[task].pid, number)

    def next_answer(self, timeout):
        for task, process in list(self._running.items()):
            if not self._answers and process.poll() is not None:
                del self._running[task]
                self._answers.append({"ended": task, "pid": process.pid, "status": process.returncode})
        if not self._answers:
            time.sleep(timeout)
            raise queue.Empty
        return self._answers.pop(0)


@pytest.fixture
def freeze():
    """Freezes processes in a cgroup of version 1, where SIGKILL does not end them."""
    group = Path(f"/sys/fs/cgroup/freezer/tfx-distribute-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"this machine allows no freezer cgroup: {error}")

    def put(pid):
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        wait_until(lambda: (group / "freezer.state").read_text().strip() == "FROZEN")

    yield put
    (group / "freezer.state").write_text("THAWED")
    for pid in (group / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    wait_until(lambda: not (group / "cgroup.procs").read_text().split())
    group.rmdir()


@pytest.fixture
def chief_of(tmp_path, monkeypatch):
    """Starts a program as the only process of a cluster.

    Returns the cluster and the process id.
    """
    monkeypatch.setattr(silence_lib, "_BUSY_SHARE", 0.005)  # others may use the machine's cores
    started = []

    def start(program, silence):
        started.append(children := Children(program))
        chief = Process(CHIEF_TASK, tmp_path / "job.json", {}, tmp_path, tmp_path)
        cluster = Processes(children, [chief], lambda *_: None, silence)
        cluster.start()
        return cluster, children.process.pid

    yield start
    for children in started:
        children.close()


@pytest.mark.timeout(60)
def test_process_that_the_kernel_does_not_end_is_named(monkeypatch, chief_of, freeze):
    monkeypatch.setattr(processes_lib, "KILL_SECONDS", 1.0, raising=False)
    cluster, pid = chief_of("import time; time.sleep(600)", SilenceMonitor(0.5, 0.5))
    freeze(pid)
    began = time.monotonic()
    with pytest.raises(TrainingError, match=rf"chief \(pid {pid}\) .*the kernel has not ended it"):
        cluster.follow(lambda failure: False)
    assert time.monotonic() - began < 10


# Like a training process: a thread gives signs of life, ten times a second.
SIGNS = """
import os, sys, threading, time
def give_signs():
    while True:
        os.utime(os.environ["TFX_DISTRIBUTE_PROGRESS"])
        time.sleep(0.1)
threading.Thread(target=give_signs, daemon=True).start()
time.sleep(0.5)
"""
HOLDS = "assert sum(range(2 * 10**8)) > 0\n"  # one call, during which no other Python thread runs


@pytest.mark.timeout(60)
def test_process_whose_main_thread_holds_the_interpreter_lock_is_not_ended(chief_of):
    cluster, _ = chief_of(SIGNS + HOLDS, SilenceMonitor(1.0, 1.0))
    cluster.follow(lambda failure: False)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("program", "stop", "busy", "message", "stuck"),
    [
        (
            SIGNS + "sum(range(10**11))\n",
            False,
            2.0,
            r"\(it used CPU time but gave no sign of life for [2-9] s; if it needs more time, write a larger "
            r"progress_timeout_secs, or 0 for no limit\)",
            True,
        ),
        (
            SIGNS + "time.sleep(600)\n",
            True,
            0.0,
            r"\(it gave no sign of life for [1-9] s; if it needs more time, write a larger heartbeat_timeout_secs\)",
            False,
        ),
    ],
    ids=["endless loop", "stopped"],
)
def test_process_that_hangs_is_ended(chief_of, program, stop, busy, message, stuck):
    cluster, pid = chief_of(program, SilenceMonitor(1.0, 1.0, busy))
    if stop:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(LostError, match=message) as lost:
        cluster.follow(lambda failure: False)
    assert lost.value.failure.stuck == stuck


SAVES = "trap 'sleep 0.2; touch saved; exit 143' TERM; touch ready; while :; do sleep 0.1; done"
IS_ASKED = "until [ -e ready ]; do sleep 0.05; done; exit 143"


@pytest.fixture
def follow_scripts(tmp_path, monkeypatch):
    """Returns a function that follows a chief and an evaluator until one has left."""
    monkeypatch.chdir(tmp_path)

    def follow(chief, evaluator):
        tasks = [ClusterTask(role, 0) for role in ("chief", "evaluator")]
        all_processes = [Process(task, tmp_path / "job.json", {}, tmp_path, tmp_path) for task in tasks]
        shells = Shells({"chief-0": chief, "evaluator-0": evaluator})
        cluster = Processes(shells, all_processes, lambda *_: None, SilenceMonitor(60, 60))
        cluster.start()
        try:
            with pytest.raises(LostError, match="exit code 143"):
                cluster.follow(lambda failure: False)
        finally:
            cluster.kill()

    return follow


@pytest.mark.timeout(60)
def test_all_that_train_save_if_the_evaluator_is_asked_to_stop(tmp_path, follow_scripts):
    follow_scripts(SAVES, IS_ASKED)
    assert (tmp_path / "saved").exists()


@pytest.mark.timeout(60)
def test_evaluator_is_not_waited_for_if_the_chief_is_asked_to_stop(follow_scripts):
    """It has nothing to save."""
    began = time.monotonic()
    follow_scripts("exit 143", "sleep 600")
    assert time.monotonic() - began < processes_lib.SAVE_SECONDS / 2

"""The launcher follows processes that hang, with real processes and without TensorFlow."""

import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import wait_until

from tfx_distribute.components.launchers import processes as processes_lib
from tfx_distribute.components.launchers.processes import Process, Processes
from tfx_distribute.components.launchers.silence import SilenceMonitor
from tfx_distribute.trainer_module.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.errors import TrainingError


class Children:
    """Starts and ends Python programs as the fork server does training processes."""

    def __init__(self, program):
        self._program = program
        self._answers = queue.Queue()
        self.process = None

    def start(self, task, job, log, environment):
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


@pytest.fixture
def freeze():
    """Puts processes into a frozen cgroup of version 1, which SIGKILL does not end."""
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
def chief_of(tmp_path):
    """Starts a program as the only process of a cluster; returns the cluster and the process id."""
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

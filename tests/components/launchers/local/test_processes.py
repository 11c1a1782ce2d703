"""Tests how hanging processes are handled, with real ones and without TensorFlow."""

import os
import re
import signal
import sys
import time

import pytest
from programs import Programs

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.local.processes import Process, Processes
from tfx_distribute.components.launchers.restarts import Restarts
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask


@pytest.fixture
def chief_of(tmp_path):
    """Starts a program as the only process of a cluster.

    Returns the cluster and the process id.
    """
    started = []

    def start(program, silent_limit):
        started.append(programs := Programs({"chief-0": [sys.executable, "-c", program]}))
        chief = Process(CHIEF_TASK, tmp_path / "job.json", {}, tmp_path, tmp_path)
        cluster = Processes(programs, [chief], lambda *_: None, silent_limit)
        cluster.start()
        return cluster, programs.running["chief-0"].pid

    yield start
    for programs in started:
        programs.close()


def follow(cluster):
    """Follows a cluster to its end; returns the state."""
    while (state := cluster.state()).phase not in ("succeeded", "failed"):
        pass
    return state


# Like a training process: a thread gives signs of life, ten times a second.
SIGNS = """
import os, threading, time
def give_signs():
    while True:
        os.utime(os.environ["TFX_DISTRIBUTE_PROGRESS"])
        time.sleep(0.1)
threading.Thread(target=give_signs, daemon=True).start()
"""


@pytest.mark.timeout(60)
def test_process_that_gives_signs_of_life_is_not_ended(chief_of):
    cluster, _ = chief_of(SIGNS + "time.sleep(6)\n", 4.0)
    assert follow(cluster).phase == "succeeded"


@pytest.mark.timeout(60)
def test_process_that_hangs_is_ended(chief_of):
    cluster, pid = chief_of(SIGNS + "time.sleep(600)\n", 1.0)
    os.kill(pid, signal.SIGSTOP)
    failure = follow(cluster).failure
    assert re.search(r"no sign of life for [1-9] s; if it needs more time, write a larger heartbeat_time", failure.message)
    assert not failure.is_final


PRINTS = """
import os, sys, time
with open(os.environ["TFX_DISTRIBUTE_PROGRESS"], "w") as file:
    print('{"phase": "run_fn"}', file=file)
with open("chief-0.log", "w") as file:
    print("Epoch 1/2\\nstep 1\\r\\x1b[1mstep 2\\x1b[0m", end="", file=file)
time.sleep(2)
"""


def test_last_line_of_a_run_fn_is_its_progress(chief_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster, _ = chief_of(PRINTS, 60.0)
    reports = []
    cluster._on_progress = lambda _, progress: reports.append((progress.phase, progress.activity))
    assert follow(cluster).phase == "succeeded"
    assert reports[0] == ("run_fn", "")
    assert reports[-1] == ("run_fn", "step 2")


@pytest.mark.timeout(60)
def test_a_server_is_not_waited_for_if_the_chief_is_asked_to_stop(tmp_path):
    """It has nothing to save."""
    tasks = [CHIEF_TASK, ClusterTask("ps", 0)]
    both = [Process(task, tmp_path / "job.json", {}, tmp_path, tmp_path, task.role == "ps") for task in tasks]
    programs = Programs({"chief-0": ["sh", "-c", "exit 143"], "ps-0": ["sleep", "600"]})
    cluster = Processes(programs, both, lambda *_: None, 60.0)
    began = time.monotonic()
    cluster.start()
    try:
        assert "exit code 143" in follow(cluster).failure.message
    finally:
        cluster.kill()
    assert time.monotonic() - began < timeouts.SAVE_SECONDS / 2


DIES_ONCE = "[ -e again ] && exec sleep 600; touch again; kill -KILL $$"
WAITS_FOR_IT = "until [ -e again ]; do sleep 0.05; done; sleep 0.5"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("max_restarts", "phase"), [(1, "succeeded"), (0, "failed")])
def test_worker_that_serves_is_started_again_alone(tmp_path, monkeypatch, max_restarts, phase):
    monkeypatch.chdir(tmp_path)
    tasks = [CHIEF_TASK, ClusterTask("worker", 0)]
    both = [Process(task, tmp_path / "job.json", {}, tmp_path, tmp_path, task.role == "worker") for task in tasks]
    programs = Programs({"chief-0": ["sh", "-c", WAITS_FOR_IT], "worker-0": ["sh", "-c", DIES_ONCE]})
    told = []
    restarts = Restarts(max_restarts, tell=told.append)
    cluster = Processes(programs, both, lambda *_: None, 60.0, restarts.allow)
    cluster.start()
    try:
        assert follow(cluster).phase == phase
    finally:
        cluster.kill()
    assert len(told) == max_restarts
    assert all(words.endswith("; restart 1 of 1") for words in told)

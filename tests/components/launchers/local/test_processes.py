"""Tests how hanging processes are handled, with real ones and without TensorFlow."""

import os
import re
import signal
import sys
import time

import pytest
from programs import Programs
from training import make_job

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.launcher import Restarts, Training
from tfx_distribute.components.launchers.local.fork_client import LAST_LINES, last_lines
from tfx_distribute.components.launchers.local.launcher import LocalLauncher, LocalLauncherSettings
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, Outputs

SERVERS = Distribution("parameter_server", num_workers=1, num_parameter_servers=1)


@pytest.fixture
def start(tmp_path):
    """Starts a program in place of each process; returns launcher and programs."""
    started = []

    def start(commands, silent_seconds=60, distribution=SERVERS, restarts=None, listener=lambda *_: None):
        programs = Programs(commands)
        settings = LocalLauncherSettings(log_dir=tmp_path, server=programs, on_progress=listener)
        outputs = Outputs("", "", str(tmp_path / "result.json"))
        fault_tolerance = FaultTolerance(heartbeat_timeout_secs=silent_seconds / 5)
        job = make_job(distribution=distribution, outputs=outputs, fault_tolerance=fault_tolerance)
        launcher = LocalLauncher(settings, job, restarts or Restarts(0))
        started.append((launcher, programs))
        launcher.start(launcher.request(Training("digits", str(tmp_path / "job.json"), distribution, {})), False)
        return launcher, programs

    yield start
    for launcher, programs in started:
        launcher.stop(has_time=True)
        programs.close()


def start_chief(start, program, silent_seconds, **arguments):
    """Starts a Python program as the only process of a cluster."""
    return start({"chief-0": [sys.executable, "-c", program]}, silent_seconds, Distribution(), **arguments)


def follow(launcher):
    """Follows a cluster to its end; returns the state."""
    while (state := launcher.state()).phase not in ("succeeded", "failed"):
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
def test_process_that_gives_signs_of_life_is_not_ended(start):
    launcher, _ = start_chief(start, SIGNS + "time.sleep(6)\n", 4.0)
    assert follow(launcher).phase == "succeeded"


@pytest.mark.timeout(60)
def test_process_that_hangs_is_ended(start):
    launcher, programs = start_chief(start, SIGNS + "time.sleep(600)\n", 1.0)
    os.kill(programs.running["chief-0"].pid, signal.SIGSTOP)
    failure = follow(launcher).failure
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


def test_last_line_of_a_run_fn_is_its_progress(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reports = []
    launcher, _ = start_chief(
        start, PRINTS, 60.0, listener=lambda _, progress: reports.append((progress.phase, progress.activity))
    )
    assert follow(launcher).phase == "succeeded"
    assert reports[0] == ("run_fn", "")
    assert reports[-1] == ("run_fn", "step 2")


@pytest.mark.timeout(60)
def test_a_server_is_not_waited_for_if_the_chief_is_asked_to_stop(start):
    """It has nothing to save."""
    waits = ["sleep", "600"]
    began = time.monotonic()
    launcher, _ = start({"chief-0": ["sh", "-c", "exit 143"], "worker-0": waits, "ps-0": waits})
    assert "exit code 143" in follow(launcher).failure.message
    assert time.monotonic() - began < timeouts.SAVE_SECONDS / 2


DIES_ONCE = "[ -e again ] && exec sleep 600; touch again; kill -KILL $$"
WAITS_FOR_IT = "until [ -e again ]; do sleep 0.05; done; sleep 0.5"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("max_restarts", "phase"), [(1, "succeeded"), (0, "failed")])
def test_worker_that_serves_is_started_again_alone(start, tmp_path, monkeypatch, max_restarts, phase):
    monkeypatch.chdir(tmp_path)
    told = []
    commands = {"chief-0": ["sh", "-c", WAITS_FOR_IT], "worker-0": ["sh", "-c", DIES_ONCE], "ps-0": ["sleep", "600"]}
    launcher, _ = start(commands, restarts=Restarts(max_restarts, tell=told.append))
    assert follow(launcher).phase == phase
    assert len(told) == max_restarts
    assert all(words.endswith("; restart 1 of 1") for words in told)


def test_last_lines_of_a_long_log(tmp_path):
    log = tmp_path / "log"
    assert last_lines(log) == []
    lines = [f"line {number} of the log" for number in range(100_000)]
    log.write_text("\n".join(lines) + "\n\n")
    assert last_lines(log) == lines[-LAST_LINES:]

"""Tests SIGTERM to a training process and to the processes that it forks."""

import os
import signal
import subprocess
import sys
import time

import pytest
from running import wait_until

from tfx_distribute.trainer_module.liveness import exit_codes, preemption

FORKS = """
import multiprocessing, os, signal, time
from tfx_distribute.trainer_module.liveness import preemption
preemption.watch()
preemption.watch()  # as where the strategy is made
"""
TERMINATES = """
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
child.start()
child.terminate()
child.join(20)
assert child.exitcode == -signal.SIGTERM, child.exitcode
"""
POOL = """
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1]) == [1]
"""
OWN_HANDLER = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
child.start()
time.sleep(0.5)
child.terminate()
child.join(20)
assert child.exitcode == 7, child.exitcode
"""
SAVES_FOR_EVER = """
import time
from tfx_distribute.trainer_module.liveness import preemption
preemption.watch()
with preemption.deferring_exit():
    print("ready", flush=True)
    time.sleep(600)
"""
THEN_GOES_ON = """
time.sleep(1)
print("goes on", flush=True)
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("forks", [TERMINATES, POOL, OWN_HANDLER], ids=["process", "pool", "own handler"])
def test_fork_that_is_terminated_does_not_end_its_parent(forks):
    done = subprocess.run(
        [sys.executable, "-c", FORKS + forks + THEN_GOES_ON], capture_output=True, text=True, timeout=40, check=False
    )
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr


@pytest.mark.timeout(120)
def test_sigterm_still_ends_the_process_itself():
    with subprocess.Popen(
        [sys.executable, "-c", FORKS + "print('ready', flush=True)\ntime.sleep(600)"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: process.poll() is not None)
        finally:
            process.kill()
    assert process.returncode == exit_codes.PREEMPTED


@pytest.mark.parametrize(("grace", "saving", "launcher"), [(None, 22.5, 25.0), ("15", 11.25, 12.5)])
def test_processes_end_before_their_launcher_and_both_before_they_are_killed(grace, saving, launcher):
    environment = {preemption.GRACE: grace} if grace else {}
    assert preemption.saving_seconds(environment) == saving
    assert preemption.launcher_seconds(environment) == pytest.approx(launcher)
    assert saving < launcher < float(grace or 30)


@pytest.mark.timeout(120)
def test_a_save_that_takes_too_long_is_given_up():
    environment = {**os.environ, preemption.GRACE: "2"}
    words = [sys.executable, "-c", SAVES_FOR_EVER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            sent = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
            seconds = time.monotonic() - sent
        finally:
            process.kill()
    assert process.returncode == exit_codes.PREEMPTED
    assert "asked to stop, and not done with saving within 1.5 s" in errors
    assert 1.5 <= seconds < 20

"""Tests how long processes may take to save."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tfx_distribute.trainer_module.liveness import exit_codes, termination

SAVES_FOR_EVER = """
import time
from tfx_distribute.trainer_module.liveness import preemption
preemption.watch()
with preemption.deferring_exit():
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(("grace", "saving", "launcher"), [(None, 22.5, 25.0), ("15", 11.25, 12.5)])
def test_processes_end_before_their_launcher_and_both_before_they_are_killed(grace, saving, launcher):
    environment = {termination.GRACE: grace} if grace else {}
    assert termination.saving_seconds(environment) == saving
    assert termination.launcher_seconds(environment) == pytest.approx(launcher)
    assert saving < launcher < float(grace or 30)


@pytest.mark.timeout(120)
def test_a_save_that_takes_too_long_is_given_up():
    environment = {**os.environ, termination.GRACE: "2"}
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

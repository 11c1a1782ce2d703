"""Tests that a process without progress ends itself in all circumstances."""

import os
import subprocess
import sys
import time

import pytest

from tfx_distribute.trainer_module.job.cluster import ERROR_FILE_VARIABLE
from tfx_distribute.trainer_module.liveness import exit_codes
from tfx_distribute.trainer_module.liveness.failure_report import Failure

STUCK = """
import sys, time
from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.liveness import watchdog
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.reporting.progress import Reporter
timeouts.REASON_SECONDS = 1.0
watchdog.start(Reporter(None), CHIEF_TASK, 1.0)
time.sleep(600)
"""


def give_up(error_file):
    """Runs a process that makes no progress; returns its exit code and its output."""
    done = subprocess.run(
        [sys.executable, "-c", STUCK],
        env={**os.environ, ERROR_FILE_VARIABLE: str(error_file)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        timeout=50,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.timeout(120)
def test_reason_is_written(tmp_path):
    code, printed = give_up(tmp_path / "error")
    assert code == exit_codes.NO_PROGRESS
    assert Failure.read(str(tmp_path / "error")).message in printed


@pytest.mark.timeout(120)
def test_storage_that_does_not_answer_is_not_waited_for(tmp_path):
    """Opening a named pipe without a reader blocks forever, like a lost file server."""
    os.mkfifo(tmp_path / "error")
    began = time.monotonic()
    code, printed = give_up(tmp_path / "error")
    assert code == exit_codes.NO_PROGRESS
    assert "chief made no progress" in printed
    assert time.monotonic() - began < 100

"""Runs Beam's portable runner Prism: its program is named by `PRISM`."""

import sys
from pathlib import Path

import example_project
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WORKER = Path(sys.executable).with_name("tfx-distribute-beam-worker")


def test_a_local_run(command, prism, tmp_path):
    """With the digits, whose ExampleGen and Transform have code of the user."""
    workers = {"environment_type": "PROCESS", "environment_config": str(WORKER)}
    # Waits longer for workers than the default: other tests run at the same time.
    beam = {"runner": "portable", "job_endpoint": prism, "options": {"job_server_timeout": 120}, **workers}
    pipeline = example_project.copy(tmp_path, "digits", beam=beam)
    done = command("run", pipeline, "-p", "train_steps=20")
    assert "Sharder" in done.output
    assert done.code in (0, 3), done.output  # 3: below its threshold

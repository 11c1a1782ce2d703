"""Tests printing where nothing can be written."""

import subprocess
import sys

PRINTS = """
import os, sys
from tfx_distribute.trainer_module.reporting import best_effort_output
best_effort_output.install()
print("x" * 100_000)
print("é", file=sys.stderr)
sys.stdout.flush()
os._exit(7)
"""


def run(**streams):
    return subprocess.run([sys.executable, "-c", PRINTS], timeout=60, check=False, **streams)


def test_output_to_a_full_disk_is_dropped():
    with open("/dev/full", "wb") as full:
        assert run(stdout=full, stderr=full).returncode == 7


def test_output_is_written_where_there_is_space():
    done = run(capture_output=True)
    assert (done.stdout, done.stderr) == (b"x" * 100_000 + b"\n", "é\n".encode())

"""Tests what runs between the end of the work and the end of the process."""

import subprocess
import sys

import pytest

START = """
import atexit, os, sys, time
from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.liveness import exit_functions
atexit.register(print, "of another")
exit_functions.forget()
"""


def end(code: str) -> "subprocess.CompletedProcess[str]":
    """Runs code in a process whose functions of `atexit` are recorded."""
    words = [sys.executable, "-c", f"{START}\n{code}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("atexit.register(print, 1, end='')\natexit.register(print, 2, sep='')", "2\n1"),
        ("atexit.register(print, 1)\natexit.unregister(print)", ""),
        ("atexit.register(print, 1)\natexit.register(sys.exit, 5)\natexit.register(lambda: 1 / 0)", "1\n"),
        ("@atexit.register\ndef last():\n    print(1)", "1\n"),
        ("timeouts.EXIT_FUNCTIONS_SECONDS = 0.1\natexit.register(print, 1)\natexit.register(time.sleep, 60)", ""),
    ],
)
def test_functions_of_the_module_run_and_no_others(code, printed):
    done = end(f"{code}\nexit_functions.end(7)")
    assert (done.returncode, done.stdout) == (7, printed)
    assert ("took longer than 0.1 s" in done.stderr) == ("sleep" in code)
    assert ("ZeroDivisionError" in done.stderr) == ("1 / 0" in code)

"""Tests that forked processes are like new ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import TENSORFLOW, ForkedProcesses

PRINT = """
import os, sys, tempfile
of_tensorflow = ("ENABLE_RUNTIME", "HDF5", "KMP", "TF2", "TF_USE", "TPU")
environment = sorted(pair for pair in os.environ.items() if not pair[0].startswith(of_tensorflow))
print(sys.argv, sys.path, os.getcwd(), environment, tempfile.gettempdir(), sys.stdin.read(), __name__)
print("error", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def processes(importers_folder):
    return ForkedProcesses(importers_folder, TENSORFLOW)


@pytest.fixture
def run(processes, tmp_path):
    def run(*arguments: str | Path, **environment: str) -> tuple[int, str]:
        variables = {"PATH": os.environ["PATH"], **environment}
        with (tmp_path / "output").open("wb") as output:
            code = processes.start(arguments, variables, tmp_path, output).wait(60)
        forked = code, (tmp_path / "output").read_text()
        words = [sys.executable, *arguments]
        done = subprocess.run(
            words, cwd=tmp_path, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert forked[0] == done.returncode
        return forked[1], done.stdout.decode()

    return run


def test_sees_what_a_new_process_sees(run, tmp_path):
    file = tmp_path / "printing.py"
    file.write_text(PRINT)
    (tmp_path / "tmp").mkdir()
    environment = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path / "tmp"), "TF_CONFIG": "{}"}
    for arguments in (("-c", PRINT, "a", "b c"), ("-m", "printing", "-m"), (file, "-c")):
        forked, new = run(*arguments, **environment)
        assert forked == new
        assert "error\n" in forked


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit('a reason')",
        "import signal; signal.raise_signal(9)",
        "import atexit, threading, time\natexit.register(print, 'end')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nraise SystemExit(5)",
    ],
)
def test_ends_as_a_new_process_does(run, code):
    forked, new = run("-c", code)
    assert forked == new


def test_a_forked_python_reads_its_input_and_ends_with_its_code():
    words = [sys.executable, Path(__file__).with_name("forked_python.py"), "-u", "-c", "raise SystemExit(int(input()))"]
    assert subprocess.run(words, input=b"5\n", check=False).returncode == 5


def test_random_numbers_differ(run):
    code = "import random, uuid; print(random.random(), uuid.uuid4())"
    assert run("-c", code)[0] != run("-c", code)[0]

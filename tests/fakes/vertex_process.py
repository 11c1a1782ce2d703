"""Starts the Python process of a container, as a fork or anew."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from forked import ForkedProcess, ForkedProcesses

Process = subprocess.Popen[bytes] | ForkedProcess


def start(
    arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes], forked: ForkedProcesses | None
) -> Process:
    """Runs `python ARGUMENTS` in a session of its own, in the folder of its output."""
    variables, folder = {**os.environ, **environment}, Path(log.name).parent
    if forked:
        return forked.start(arguments, variables, folder, log, ends_session=True)
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=variables,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill(process: Process) -> None:
    """Kills all processes of a container: none outlives the first."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)

"""Runs any programs in place of training processes, as the fork server does those."""

import contextlib
import os
import signal
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path


class Programs:
    """A stand-in for `ForkServer`.

    Args:
      commands: Name of a task, such as `chief-0` -> its program and arguments.

    Attributes:
      running: The process that each task has started last.
    """

    def __init__(self, commands: dict[str, list[str]]):
        self._commands = commands
        self._waiting = ThreadPoolExecutor()
        self._pids: dict[Future[int], int] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, job: object, log: Path, environment: dict[str, str], imports_tensorflow: bool) -> "Future[int]":
        process = subprocess.Popen(self._commands[log.stem], env={**os.environ, **environment}, start_new_session=True)
        self.running[log.stem] = process
        end = self._waiting.submit(process.wait)
        self._pids[end] = process.pid
        return end

    def signal(self, process: "Future[int]", number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pids[process], number)

    def check(self) -> None:
        pass

    def close(self) -> None:
        for end in self._pids:
            if not end.done():
                self.signal(end, signal.SIGKILL)
                end.result(timeout=20)

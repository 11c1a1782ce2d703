"""Runs any programs in place of training processes, as the fork server does those."""

import os
import queue
import signal
import subprocess
import time
from typing import Any


class Programs:
    """A stand-in for `ForkServer`.

    Args:
      commands: Name of a task, such as `chief-0` -> its program and arguments.

    Attributes:
      running: The processes that have not ended, as far as is known.
    """

    def __init__(self, commands: dict[str, list[str]]):
        self._commands = commands
        self._answers: list[dict[str, Any]] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, task: str, job: object, log: object, environment: dict[str, str], imports_tensorflow: bool) -> None:
        self.running[task] = subprocess.Popen(
            self._commands[task], env={**os.environ, **environment}, start_new_session=True
        )
        self._answers.append({"started": task, "pid": self.running[task].pid})

    def signal(self, task: str, number: int) -> None:
        if task in self.running:
            os.killpg(self.running[task].pid, number)

    def next_answer(self, timeout: float) -> dict[str, Any]:
        for task, process in list(self.running.items()):
            if not self._answers and process.poll() is not None:
                del self.running[task]
                self._answers.append({"ended": task, "pid": process.pid, "status": process.returncode})
        if not self._answers:
            time.sleep(timeout)
            raise queue.Empty
        return self._answers.pop(0)

    def close(self) -> None:
        for task, process in self.running.items():
            self.signal(task, signal.SIGKILL)
            process.wait(timeout=20)

"""The launcher's end of `trainer_module.fork_server`: starts it, tells it what to start, hears what ended."""

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tfx_distribute.components.launchers.local import loopback
from tfx_distribute.components.module_command import module_command
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import keras_environment
from tfx_distribute.trainer_module.lifecycle.clock import RunningClock
from tfx_distribute.trainer_module.lifecycle.exposure import Exposure

START_TIMEOUT = 300.0  # seconds to import TensorFlow in, on a machine that does much else
PING_SECONDS = 5.0  # between two questions whether the server is there
ANSWER_TIMEOUT = 120.0  # seconds without an answer after which it is given up


class ForkServer:
    """A process that has TensorFlow imported and forks training processes.

    It is best started before it is needed: importing takes seconds, in which this process can do something else.

    Args:
      log: File for what the server itself prints.
      keras_version: Generation of Keras that its training processes use.
    """

    def __init__(self, log: str | Path, keras_version: int = 2):
        self.log = Path(log)
        self.keras_version = keras_version
        with open(log, "ab") as stderr:
            self._process = subprocess.Popen(
                module_command("tfx_distribute.trainer_module.fork_server"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **keras_environment(keras_version), **loopback.environment(os.environ)},
                start_new_session=True,  # a Ctrl-C at the terminal is for the launcher
            )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True, name="fork-server-answers").start()
        self._ready = False
        self._exposure = Exposure.NETWORK
        self._clock = RunningClock()
        self._pinged = 0.0
        self._waits_since: float | None = None  # when the first question was asked that has no answer yet

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def wait_ready(self) -> Exposure:
        """Waits until TensorFlow is imported.

        Returns:
          Who can connect to a server of a training process.

        Raises:
          TrainingError: It is not, within `START_TIMEOUT`.
        """
        if not self._ready:
            began = self._clock.seconds()
            while not self._ready:
                with contextlib.suppress(queue.Empty):
                    self._exposure = Exposure(self._take(timeout=1.0)["exposure"])
                    self._ready = True
                if not self._ready and self._clock.seconds() - began > START_TIMEOUT:
                    raise TrainingError(f"TensorFlow was not imported within {START_TIMEOUT:g} s; see {self.log}")
        return self._exposure

    def start(self, task: str, job: Path, log: Path, environment: dict[str, str]) -> None:
        """Forks a training process; the answer tells its id. It imports from where this process does."""
        path = [os.path.abspath(entry) for entry in sys.path]
        self._send({"start": task, "job": str(job), "log": str(log), "environment": environment, "import_path": path})

    def signal(self, task: str, number: int) -> None:
        """Sends a signal to a training process, SIGKILL to all that it started too; none if it has ended."""
        self._send({"signal": task, "number": int(number)})

    def next_answer(self, timeout: float) -> dict[str, Any]:
        """The server's next answer, waited for at most `timeout` seconds.

        To be called again and again, as it also notices a server that no longer answers.

        Raises:
          queue.Empty: None came.
          TrainingError: The server is gone, or has not answered for `ANSWER_TIMEOUT`.
        """
        now = self._clock.seconds()
        if now - self._pinged >= PING_SECONDS:
            self._pinged = now
            self._waits_since = now if self._waits_since is None else self._waits_since
            self._send({"ping": True})
        try:
            answer = self._take(timeout)
        except queue.Empty:
            if self._waits_since is not None and self._clock.seconds() - self._waits_since > ANSWER_TIMEOUT:
                raise self._given_up() from None
            raise
        self._waits_since = None
        return answer

    def _take(self, timeout: float) -> dict[str, Any]:
        answer = self._answers.get(timeout=timeout)
        if answer is None:
            self._answers.put(None)
            end = self.log.read_text(errors="replace").strip().splitlines()[-20:]
            raise TrainingError("\n".join(["the process that starts training processes ended:", *end]))
        return answer

    def close(self) -> None:
        """Kills every training process that is left, and ends the server."""
        if not self._ready:
            self._process.kill()  # it has started nothing yet, and would finish its import first
        if self._process.stdin and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel does not let it go yet
                self._process.wait(timeout=10)

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)  # a server that is stopped leaves the pipe full
        left = json.dumps(request).encode() + b"\n"
        began = self._clock.seconds()
        with contextlib.suppress(BrokenPipeError):  # the next answer says so
            while left:
                if select.select([], [pipe], [], 1.0)[1]:
                    left = left[os.write(pipe, left) :]
                elif self._clock.seconds() - began > ANSWER_TIMEOUT:
                    raise self._given_up()

    def _given_up(self) -> TrainingError:
        """Kills the server, and with it the training processes."""
        self._process.kill()
        return TrainingError(
            f"the process that starts and ends training processes (pid {self.pid}) did not answer for {ANSWER_TIMEOUT:g} s "
            "and was killed, with all training processes; the same command continues after the last saved step"
        )

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

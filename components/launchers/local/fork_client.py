"""Starts the fork server and sends it requests about training processes.

The server is `trainer_module.fork_server`. It answers when a process has started or
ended.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.local import log_tail, loopback
from tfx_distribute.components.module_command import module_command
from tfx_distribute.trainer_module import tpu_library
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import keras_environment
from tfx_distribute.trainer_module.liveness.exposure import Exposure


class ForkServer:
    """A process that has imported TensorFlow, and forks training processes.

    Start it before you need it: the import takes seconds, in which the caller can do
    something else. `log` gets the output of the server itself. Its training processes
    use `keras_version`, 2 or 3.

    Example:
      >>> with ForkServer("server.log") as server:
      ...     server.wait_ready()
    """

    def __init__(self, log: str | Path, keras_version: int = 2):
        self.log = Path(log)
        self.keras_version = keras_version
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as stderr:
            self._process = subprocess.Popen(
                [
                    *module_command("tfx_distribute.trainer_module.fork_server"),
                    "tfx_distribute.trainer_module.forked:prepare",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={
                    **os.environ,
                    **tpu_library.NOT_LOADED,
                    **keras_environment(keras_version),
                    **loopback.environment(os.environ),
                },
                start_new_session=True,  # so that Ctrl-C at the terminal reaches only the launcher
            )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True, name="fork-server-answers").start()
        self._ready = False
        self._exposure = Exposure.NETWORK

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def wait_ready(self) -> Exposure:
        """Waits until TensorFlow is imported.

        Returns who can connect to the servers of training processes.

        Raises:
          TrainingError: The import took too long, or failed.
        """
        if not self._ready:
            try:
                self._exposure = Exposure(self.next_answer(timeouts.IMPORT_SECONDS)["exposure"])
            except queue.Empty:
                raise TrainingError(
                    f"TensorFlow was not imported within {timeouts.IMPORT_SECONDS:g} s; see {self.log}"
                ) from None
            self._ready = True
        return self._exposure

    def start(self, task: str, job: Path, log: Path, environment: dict[str, str], imports_tensorflow: bool = False) -> None:
        """Starts a training process with the import path of this process.

        The server answers with its process id. `task` names it in later requests and
        answers; `environment` has variables that are added. With `imports_tensorflow`,
        it imports TensorFlow itself, which takes seconds; otherwise it has that of the
        server.
        """
        path = [os.path.abspath(entry) for entry in sys.path]
        command = None
        if imports_tensorflow:
            command = [*module_command("tfx_distribute.trainer_module"), "--job", str(job), "--child-of-fork-server"]
            environment = {**environment, "PYTHONPATH": os.pathsep.join(path)}
        call = {"call": "tfx_distribute.trainer_module.process:main", "arguments": [str(job)], "command": command}
        self._send({"start": task, **call, "log": str(log), "environment": environment, "import_path": path})

    def signal(self, task: str, number: int) -> None:
        """Sends a signal to a training process; does nothing if it has ended.

        SIGKILL also goes to every process that it has started.
        """
        self._send({"signal": task, "number": int(number)})

    def next_answer(self, timeout: float) -> dict[str, Any]:
        """Returns the server's next answer; waits `timeout` seconds at most.

        Raises:
          queue.Empty: No answer came in time.
          TrainingError: The server has ended.
        """
        answer = self._answers.get(timeout=timeout)
        if answer is None:
            self._answers.put(None)
            lines = log_tail.last_lines(self.log)
            raise TrainingError("\n".join(["the process that starts training processes ended:", *lines]))
        return answer

    def close(self) -> None:
        """Kills all remaining training processes and ends the server."""
        if not self._ready:
            self._process.terminate()  # otherwise it would finish its import first
        if self._process.stdin and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel cannot end it yet
                self._process.wait(timeout=10)

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, request: dict[str, Any]) -> None:
        """Writes a request to the server."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the server has ended: `next_answer` raises for that
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        """Queues the server's answers, and None when it has ended."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Something that Python runs at its start may print before the server does.
            with contextlib.suppress(json.JSONDecodeError):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    self._answers.put(answer)
        self._answers.put(None)

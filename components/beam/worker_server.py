"""Starts Beam workers as forks of a process that has imported what they need.

A fresh interpreter needs seconds to import TensorFlow and TFX, and a component starts
workers for each of its Beam pipelines.
"""

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import Future

from tfx_distribute.components.module_command import module_command
from tfx_distribute.trainer_module.liveness import exit_codes

_WORKER = "tfx_distribute.components.beam.worker_process"


class WorkerServer:
    """A fork server of Beam workers; see `trainer_module.fork_server`."""

    def __init__(self) -> None:
        self._ends: dict[str, Future[int]] = {}  # of the workers that run, by name
        self._process = subprocess.Popen(
            [*module_command("tfx_distribute.trainer_module.fork_server"), f"{_WORKER}:prepare"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C at the terminal reaches only this process
        )
        threading.Thread(target=self._listen, daemon=True, name="beam-worker-ends").start()
        atexit.register(self.close)

    def start(self, environment: Mapping[str, str]) -> tuple[str, "Future[int]"]:
        """Starts a worker with the environment of this process, and more variables.

        Returns its name, for `kill`, and its exit code, or minus the number of the
        signal that ended it.
        """
        name, end = uuid.uuid4().hex, Future[int]()
        self._ends[name] = end
        path = [os.path.abspath(entry) for entry in sys.path]
        request = {"start": name, "call": f"{_WORKER}:run", "arguments": (), "command": None, "log": None}
        self._send({**request, "environment": {**os.environ, **environment}, "import_path": path})
        return name, end

    def kill(self, name: str) -> None:
        """Kills a worker, and all processes that it has started."""
        self._send({"signal": name, "number": signal.SIGKILL})

    def close(self) -> None:
        """Ends the server, and with it all workers."""
        self._process.terminate()
        self._process.wait()

    def _send(self, request: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "ended" in answer:
                status = answer["status"]
                self._ends.pop(answer["ended"]).set_result(0 if status == exit_codes.LEFT_EARLY else status)
        for end in self._ends.values():  # the server has ended, and its workers with it
            end.set_result(-signal.SIGKILL)


@functools.cache
def shared() -> WorkerServer:
    """Returns the server of this process; starts it when first called."""
    return WorkerServer()

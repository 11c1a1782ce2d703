"""Starts a fork server and sends it requests.

The server is `trainer_module.fork_server`, which describes both.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import IO, Any, cast

# The first entry of sys.path is the working folder. An installed program must not
# import from it: in a folder that others can write to, it would run their code.
# Python 3.11 has the option -P for this.
_RUN = "import sys; del sys.path[0]; import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"


class ForkClient:
    """A fork server of this process, which ends with it.

    Args:
      prepare: The function that the server calls before it forks, as `MODULE:FUNCTION`.
      environment: Environment variables of the server.
      stderr: File for the output of the server; by default that of this process.

    Attributes:
      ready: The first answer of the server, once it is prepared; empty if it has ended.
      has_ended: True if the server has ended.
    """

    def __init__(self, prepare: str, environment: Mapping[str, str], stderr: IO[bytes] | None = None):
        self.ready: Future[dict[str, Any]] = Future()
        self.has_ended = False
        self._ends: dict[str, Future[int]] = {}  # of all processes
        self._process = subprocess.Popen(
            [*module_command("tfx_distribute.trainer_module.fork_server"), prepare],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(environment),
            start_new_session=True,  # so that Ctrl-C at the terminal reaches only this process
        )
        self._requests = cast(IO[bytes], self._process.stdin)
        threading.Thread(target=self._listen, daemon=True, name="fork-server-answers").start()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def fork(
        self,
        call: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: str | None = None,
        command: Sequence[str] | None = None,
    ) -> "Future[int]":
        """Starts a process with the import path of this process.

        It calls `MODULE:FUNCTION` with `arguments`, or runs a `command`; `environment`
        has variables that are added. Returns its exit code, or minus the number of the
        signal that ended it. Those of the server count if it has ended.
        """
        name = uuid.uuid4().hex
        end = self._ends[name] = Future[int]()
        words = {"call": call, "arguments": arguments, "log": log, "command": command}
        self._send({"start": name, **words, "environment": environment, "import_path": import_path()})
        if self.has_ended:  # perhaps just now
            self._end_all()
        return end

    def signal(self, process: "Future[int]", number: int) -> None:
        """Sends a signal to what `fork` has started; does nothing if it has ended.

        SIGKILL also goes to every process that it has started.
        """
        for name, end in list(self._ends.items()):
            if end is process:
                self._send({"signal": name, "number": int(number)})

    def close(self) -> None:
        """Kills all remaining processes and ends the server."""
        if not self.ready.done():
            self._process.terminate()  # otherwise it would finish its import first
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel cannot end it yet
                self._process.wait(timeout=10)

    def _send(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the server has ended
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()

    def _listen(self) -> None:
        for line in cast(IO[bytes], self._process.stdout):
            # Something that Python runs at its start may print before the server does.
            with contextlib.suppress(json.JSONDecodeError):
                answer = json.loads(line)
                if isinstance(answer, dict) and "ended" in answer:
                    self._ends.pop(answer["ended"]).set_result(answer["status"])
                elif isinstance(answer, dict):
                    self.ready.set_result(answer)
        self.has_ended = True
        self._end_all()

    def _end_all(self) -> None:
        status = self._process.wait()
        with contextlib.suppress(InvalidStateError):
            self.ready.set_result({})
        for end in list(self._ends.values()):
            with contextlib.suppress(InvalidStateError):
                end.set_result(status)


def module_command(module: str) -> list[str]:
    """Returns a command like `python -m MODULE` that ignores the working folder."""
    return [sys.executable, "-c", _RUN.format(module)]


def import_path() -> list[str]:
    """Returns this process's import path, for one with another working folder."""
    return [os.path.abspath(entry) for entry in sys.path]

"""Starts a fork server and sends it requests.

The server is `trainer_module.fork_server`, which describes both.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, cast

from tfx_distribute.components.module_command import module_command


class ForkClient:
    """A fork server of this process, which ends with it.

    Args:
      prepare: The function that the server calls before it forks, as `MODULE:FUNCTION`.
      environment: Environment variables of the server.
      on_answer: Gets each answer, and None when the server has ended, in a thread of
        its own.
      stderr: File for the output of the server; by default that of this process.
    """

    def __init__(
        self,
        prepare: str,
        environment: Mapping[str, str],
        on_answer: Callable[[dict[str, Any] | None], None],
        stderr: IO[bytes] | None = None,
    ):
        self._is_ready = False
        self._on_answer = on_answer
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
        name: str,
        call: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: str | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        """Starts a process with the import path of this process.

        `name` names it in later requests and answers. It calls `MODULE:FUNCTION` with
        `arguments`, or runs a `command`; `environment` has variables that are added.
        """
        words = {"call": call, "arguments": arguments, "log": log, "command": command}
        self._send({"start": name, **words, "environment": environment, "import_path": import_path()})

    def signal(self, name: str, number: int) -> None:
        """Sends a signal to a process; does nothing if it has ended.

        SIGKILL also goes to every process that it has started.
        """
        self._send({"signal": name, "number": int(number)})

    def wait(self) -> int:
        """Waits until the server has ended; returns its exit code, as `Popen.wait`."""
        return self._process.wait()

    def close(self) -> None:
        """Kills all remaining processes and ends the server."""
        if not self._is_ready:
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
        """Writes a request to the server."""
        with contextlib.suppress(BrokenPipeError):  # the server has ended: `on_answer` gets None
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()

    def _listen(self) -> None:
        for line in cast(IO[bytes], self._process.stdout):
            # Something that Python runs at its start may print before the server does.
            with contextlib.suppress(json.JSONDecodeError):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    self._is_ready = True
                    self._on_answer(answer)
        self._on_answer(None)


def import_path() -> list[str]:
    """Returns this process's import path, for one with another working folder."""
    return [os.path.abspath(entry) for entry in sys.path]

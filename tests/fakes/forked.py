"""Starts processes as forks of one that has imported TFX, which takes 10 CPU seconds.

A forked process has the arguments, the environment, the folder and the streams of a new
one, is the leader of a session, and ends as a new one does. It differs in this:

* All modules in `TFX` are imported already. Tests of imports, of `python` itself or of
  its exit need a new process, and so does one step of each platform.
* All forks have the same hash seed. A test that an order is the same in each process
  needs a new one.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import importers

TFX = (
    "tensorflow_model_analysis",
    "tfx.v1",
    "tfx_distribute.components.container.commands",
    "tfx_distribute.components.container.vertex",
    "tfx_distribute.components.evaluator.executor",
    "tfx_distribute.components.example_gen.executor",
    "tfx_distribute.components.example_gen.driver",
    "tfx_distribute.components.pusher.executor",
    "tfx_distribute.components.sharder.executor",
    "tfx_distribute.components.trainer.executor",
    "tfx_distribute.components.tuner.executor",
    "tfx_distribute.pipelines.cli.console",
    "tfx_distribute.pipelines.cli.main",
    "tfx_distribute.pipelines.cli.node_errors",
    "tfx_distribute.pipelines.targets.local.runner",
)


class ForkedProcess:
    """A forked process, with the interface of `subprocess.Popen`.

    Attributes:
      pid: Its id, which is also that of its session.
      returncode: Its exit code; minus the number of the signal that ended it; None
        until its end was seen.
    """

    def __init__(self, answers: socket.socket):
        self._answers, self._received, self._lock = answers, b"", threading.Lock()
        self.returncode: int | None = None
        self.pid = self._next(None)

    def poll(self) -> int | None:
        """Returns its exit code; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Waits until it ends; returns its exit code.

        Raises:
          subprocess.TimeoutExpired: It still runs.
        """
        with self._lock:
            if self.returncode is None:
                try:
                    self.returncode = self._next(timeout)
                except (BlockingIOError, TimeoutError):
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
                self._answers.close()
            return self.returncode

    def kill(self) -> None:
        """Kills it, if it still runs."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ends it, if it still runs."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def _next(self, timeout: float | None) -> int:
        self._answers.settimeout(timeout)
        while b"\n" not in self._received:
            received = self._answers.recv(32)
            if not received:
                raise ConnectionResetError("the process that forks others has ended")
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        return int(line)


def fork(
    control: socket.socket,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: str | Path,
    streams: Sequence[int],
    ends_session: bool,
) -> ForkedProcess:
    """Asks the server at the other end of a socket for a process.

    Args:
      control: The socket.
      arguments: As of `ForkedProcesses.start`.
      environment: All environment variables of the process.
      folder: Its working folder.
      streams: Descriptors of its standard streams.
      ends_session: As of `ForkedProcesses.start`.
    """
    request = {
        "arguments": [*map(str, arguments)],
        "environment": {**environment},
        "folder": str(folder),
        "ends_session": ends_session,
    }
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(control, [b"."], [theirs.fileno(), *streams])
    ours.sendall(json.dumps(request).encode() + b"\n")
    return ForkedProcess(ours)


class ForkedProcesses:
    """Forks processes from those that have imported modules.

    Args:
      folder: Folder of the importers.
      modules: The modules.

    Example:
      >>> forked = ForkedProcesses(importers_folder)
      ... forked.start(["-m", "MODULE", "a"], os.environ, folder, output).wait()
    """

    def __init__(self, folder: Path, modules: Sequence[str] = TFX):
        self._folder, self._modules = folder, modules

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: str | Path,
        output: IO[bytes] | int,
        ends_session: bool = False,
    ) -> ForkedProcess:
        """Starts what `python ARGUMENTS` would run.

        It gets no input, and writes all output to one file.

        Args:
          arguments: `-m MODULE`, `-c CODE` or a file, and the program's own.
          environment: All of its environment variables.
          folder: Its working folder.
          output: Its standard output and standard error.
          ends_session: True if no process that it has started outlives it, as in a
            container.
        """
        descriptor = output if isinstance(output, int) else output.fileno()
        try:
            with importers.control(self._folder, self._modules, environment) as control, open(os.devnull, "rb") as nothing:
                streams = (nothing.fileno(), descriptor, descriptor)
                return fork(control, arguments, environment, folder, streams, ends_session)
        except OSError as error:
            logs = "\n".join(log.read_text() for log in sorted(self._folder.glob("importer-*.log")))
            raise RuntimeError(f"the process that forks others has ended:\n{logs}") from error

"""Starts processes as forks of one that has imported TFX, which takes 10 CPU seconds.

A forked process has the arguments, the environment, the folder and the streams of a new
one, is the leader of a session, and ends as a new one does. It differs in this:

* All modules in `TFX` are imported already. Tests of imports, of `python` itself or of
  its exit need a new process, and so does one step of each platform.
* All forks have the same hash seed. A test that an order is the same in each process
  needs a new one.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import forked_training

TFX = (
    "tensorflow_model_analysis",
    "tfx.v1",
    "tfx_distribute.components.container.commands",
    "tfx_distribute.components.container.vertex",
    "tfx_distribute.components.evaluator.executor",
    "tfx_distribute.components.example_gen.csv_executor",
    "tfx_distribute.components.example_gen.driver",
    "tfx_distribute.components.pusher.executor",
    "tfx_distribute.components.sharder.executor",
    "tfx_distribute.components.trainer.executor",
    "tfx_distribute.components.tuner.executor",
    "tfx_distribute.pipelines.cli.console",
    "tfx_distribute.pipelines.cli.main",
    "tfx_distribute.pipelines.cli.node_errors",
    "tfx_distribute.pipelines.runners.local.runner",
)
FORK_SERVERS = "--fork-servers="  # an option of fork_main.py: where to ask for fork servers
# Variables that are read when they are needed. With any other environment, there is
# another process that has imported TFX.
_READ_LATE = re.compile(
    r"AIP_\w+|CLOUD_ML_JOB_ID|CLUSTER_SPEC|KFP_\w+|no_proxy|PATH|PYTEST_\w+|PYTHONPATH|TF_CONFIG|TFX_DISTRIBUTE_FOLLOWED|TMPDIR"
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

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it still runs."""
        if self.poll() is None:
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


def read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that Python or a module may read when it is imported."""
    return {name: value for name, value in environment.items() if not _READ_LATE.fullmatch(name)}


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
    """Forks processes. A context manager that ends all of them.

    Args:
      folder: Folder for the logs of processes that import TFX.
      modules: The modules that those import.

    Example:
      >>> with ForkedProcesses(folder) as forked:
      ...     forked.start(["-m", "MODULE", "a"], os.environ, folder, output).wait()
    """

    def __init__(self, folder: Path, modules: Sequence[str] = TFX):
        self._folder, self._modules, self._lock = folder, modules, threading.Lock()
        self._servers: dict[frozenset[tuple[str, str]], socket.socket] = {}
        self._processes: list[tuple[subprocess.Popen[bytes], socket.socket]] = []

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
        with self._lock:
            control = self._server(read_early(environment))
        try:
            with open(os.devnull, "rb") as nothing:
                streams = (nothing.fileno(), descriptor, descriptor)
                return fork(control, arguments, environment, folder, streams, ends_session)
        except OSError as error:
            logs = "\n".join(log.read_text() for log in sorted(self._folder.glob("server-*.log")))
            raise RuntimeError(f"the process that forks others has ended:\n{logs}") from error

    def _server(self, environment: Mapping[str, str]) -> socket.socket:
        """Returns the socket of the process that has imported TFX in an environment."""
        key = frozenset(environment.items())
        if key not in self._servers:
            options, descriptors = [], []
            if self._modules is TFX:
                trainings = self._start(forked_training.environment(environment), forked_training.MODULES)
                options, descriptors = [f"{FORK_SERVERS}{trainings.fileno()}"], [trainings.fileno()]
            self._servers[key] = self._start(environment, [*options, *self._modules], descriptors)
        return self._servers[key]

    def _start(
        self, environment: Mapping[str, str], arguments: Sequence[str], descriptors: Sequence[int] = ()
    ) -> socket.socket:
        """Starts a process that forks others; returns the socket for requests."""
        ours, theirs = socket.socketpair()
        with theirs, (self._folder / f"server-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fork_main.py")), *arguments],
                env={**environment, "PATH": os.environ["PATH"], "TMPDIR": str(self._folder)},
                stdin=theirs,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=descriptors,
            )
        self._processes.append((process, ours))
        return ours

    def __enter__(self) -> "ForkedProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        for _, control in self._processes:
            control.close()
        for server, _ in self._processes:
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:  # it still imports
                server.kill()
                server.wait()

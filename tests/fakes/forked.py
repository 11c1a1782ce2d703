"""Starts processes as forks of one that has imported TFX, which takes 10 CPU seconds.

A forked process has the arguments, the environment, the folder and the streams of a new
one, is the leader of a session, and ends as a new one does. It differs in this:

* All modules that `forked_process.tfx` imports are there already. Tests of imports, of
  `python` itself or of its exit need a new process, and so does one step of each
  platform.
* All forks have the same hash seed. A test that an order is the same in each process
  needs a new one.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tfx_distribute.components.fork_client import module_command

CONTAINER_SECONDS = 280.0
TFX, TENSORFLOW = "forked_process:tfx", "forked_process:tensorflow"


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
    importers_folder: Path,
    prepare: str,
    arguments: Sequence[str | Path],
    environment: Mapping[str, str],
    folder: str | Path,
    streams: Sequence[int],
) -> ForkedProcess:
    """Forks a process from one that has imported modules.

    Args:
      importers_folder: Folder of the importers.
      prepare: The function that has imported the modules, as `MODULE:FUNCTION`.
      arguments: As of `ForkedProcesses.start`.
      environment: All environment variables of the process.
      folder: Its working folder.
      streams: Descriptors of its standard streams.
    """
    request = {
        "prepare": prepare,
        "arguments": [*map(str, arguments)],
        "environment": {**environment},
        "folder": str(folder),
    }
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(importers_folder / "socket"))
        socket.send_fds(connection, [b"."], streams)
        connection.sendall(json.dumps(request).encode() + b"\n")
        return ForkedProcess(connection)
    except OSError as error:
        logs = "\n".join(log.read_text() for log in sorted(importers_folder.glob("importer-*.log")))
        raise RuntimeError(f"the process that forks others has ended:\n{logs}") from error


class ForkedProcesses:
    """Forks processes from one that has imported modules.

    Args:
      folder: Folder of the importers.
      prepare: The function that has imported them.

    Example:
      >>> forked = ForkedProcesses(importers_folder)
      ... forked.start(["-m", "MODULE", "a"], os.environ, folder, output).wait()
    """

    def __init__(self, folder: Path, prepare: str = TFX):
        self._folder, self._prepare = folder, prepare

    def start(
        self, arguments: Sequence[str | Path], environment: Mapping[str, str], folder: str | Path, output: IO[bytes] | int
    ) -> ForkedProcess:
        """Starts what `python ARGUMENTS` would run.

        It gets no input, and writes all output to one file. No process that it has
        started in its session outlives it.

        Args:
          arguments: `-m MODULE`, `-c CODE` or a file, and the program's own.
          environment: All of its environment variables.
          folder: Its working folder.
          output: Its standard output and standard error.
        """
        descriptor = output if isinstance(output, int) else output.fileno()
        with open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), descriptor, descriptor)
            return fork(self._folder, self._prepare, arguments, environment, folder, streams)


Process = subprocess.Popen[bytes] | ForkedProcess


def start_container(
    words: Sequence[str], environment: Mapping[str, str], log: IO[bytes], forked: ForkedProcesses | None
) -> Process:
    """Runs the command of a container in a session, in the folder of its output.

    Args:
      words: `python` and its arguments.
      environment: Environment variables that are added.
      log: Gets its output.
      forked: Forks it; it is a new process without.
    """
    python, *arguments = words
    assert python == "python", words
    variables, folder = {**os.environ, **environment}, Path(log.name).parent
    if forked:
        return forked.start(arguments, variables, folder, log)
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=variables,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill_container(process: Process) -> None:
    """Kills all processes of a container: none outlives the first."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def run_container(
    words: Sequence[str], environment: Mapping[str, str], log: Path, forked: ForkedProcesses | None
) -> tuple[int | None, str]:
    """Runs a container to its end; returns its exit code and what it printed."""
    with log.open("wb") as output:
        process = start_container(words, environment, output, forked)
        try:
            process.wait(CONTAINER_SECONDS)
        finally:
            kill_container(process)
    return process.returncode, log.read_text(errors="replace")


def subprocess_for_fork_servers(importers_folder: Path) -> types.SimpleNamespace:
    """Returns a `subprocess` for `fork_client`: fork servers of trainings are forks.

    The product starts one for each run of a pipeline, which imports TensorFlow while
    others import TFX: there would be little to gain from forks of the latter alone.
    """
    server = module_command("tfx_distribute.trainer_module.fork_server")

    def popen(words: list[str], *, stdin: int, stdout: int, stderr: Any, env: dict[str, str], **options: Any) -> Any:
        if words != [*server, "tfx_distribute.trainer_module.process:prepare"]:
            return subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, env=env, **options)
        read_requests, write_requests = os.pipe()
        read_answers, write_answers = os.pipe()
        streams = (read_requests, write_answers, stderr.fileno())
        process: Any = fork(importers_folder, TENSORFLOW, words[1:], env, os.getcwd(), streams)
        os.close(read_requests)
        os.close(write_answers)
        process.stdin, process.stdout = os.fdopen(write_requests, "wb", 0), os.fdopen(read_answers, "rb")
        return process

    return types.SimpleNamespace(**{**vars(subprocess), "Popen": popen})

"""Keeps processes that have imported modules, and fork others on request.

Importing TFX takes 10 CPU seconds. Pytest's main process keeps them, so that all
parallel test processes share them, and the processes that these start.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

# Variables that are read when they are needed, and those that TensorFlow sets. With any
# other environment, there is another process that has imported the modules.
_READ_LATE = r"AIP_\w+|CLOUD_ML_JOB_ID|CLUSTER_SPEC|KFP_\w+|no_proxy|PATH|PYTEST_\w+|PYTHONPATH|TF_CONFIG|TMPDIR"
_OURS = "TFX_DISTRIBUTE_FOLLOWED|TFX_DISTRIBUTE_REQUESTED_GPUS"
_OF_TENSORFLOW = "KMP_DUPLICATE_LIB_OK|KMP_INIT_AT_FORK|TF2_BEHAVIOR|TPU_ML_PLATFORM"
_NOT_READ = re.compile(f"{_READ_LATE}|{_OURS}|{_OF_TENSORFLOW}")


def control(folder: Path, modules: Sequence[str], environment: Mapping[str, str]) -> socket.socket:
    """Returns the socket for requests to a process that has imported modules.

    Args:
      folder: That of `Importers`.
      modules: The modules.
      environment: Environment variables.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "socket"))
        connection.sendall(json.dumps([[*modules], {**environment}]).encode() + b"\n")
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    return socket.socket(fileno=descriptors[0])


class Importers:
    """Starts the processes when somebody asks for them. A context manager.

    A process ends, with all of its forks, when the last copy of its socket is closed.

    Args:
      folder: Folder for logs and a socket.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._server = socket.create_server(str(folder / "socket"), family=socket.AF_UNIX)
        self._controls: dict[tuple[tuple[str, ...], frozenset[tuple[str, str]]], socket.socket] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "Importers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        for each in self._controls.values():
            each.close()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:  # it still imports, or a killed test has its socket
                process.kill()
                process.wait()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the server is shut down
            while True:
                connection, _ = self._server.accept()
                with connection, connection.makefile() as lines, contextlib.suppress(BrokenPipeError):  # the client has left
                    modules, environment = json.loads(lines.readline())
                    socket.send_fds(connection, [b"."], [self._control(modules, environment).fileno()])

    def _control(self, modules: Sequence[str], environment: Mapping[str, str]) -> socket.socket:
        environment = {name: value for name, value in environment.items() if not _NOT_READ.fullmatch(name)}
        key = (*modules,), frozenset(environment.items())
        if key not in self._controls:
            self._controls[key] = self._start(modules, environment)
        return self._controls[key]

    def _start(self, modules: Sequence[str], environment: Mapping[str, str]) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, (self._folder / f"importer-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fork_main.py")), str(self._folder), *modules],
                env={**environment, "PATH": os.environ["PATH"], "TMPDIR": str(self._folder)},
                stdin=theirs,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return ours

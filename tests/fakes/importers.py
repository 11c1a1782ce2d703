"""Keeps fork servers that have imported modules, for all test processes.

Importing TFX takes 10 CPU seconds. Pytest's main process keeps the servers, which are
those of the product, so that all parallel test processes share them, and the processes
that these start.
"""

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from tfx_distribute.components.fork_client import ForkClient

# Variables that are read when they are needed, and those that TensorFlow sets. With any
# other environment, there is another process that has imported the modules.
_READ_LATE = (
    r"AIP_\w+|CLOUD_ML_JOB_ID|CLUSTER_SPEC|CUDA_VISIBLE_DEVICES|IMPORTERS|KFP_\w+|no_proxy|NO_PROXY|PATH"
    r"|PYTEST_\w+|PYTHONPATH|TF_CONFIG|TMPDIR"
)
_ADDRESSES = "NOTIFY_URLS|RUNS_GO_TO|TOLD"  # the `notify.urls` of tests
_OURS = "TFX_DISTRIBUTE_ERROR|TFX_DISTRIBUTE_FOLLOWED|TFX_DISTRIBUTE_REQUESTED_GPUS"
_OF_TENSORFLOW = r"ENABLE_RUNTIME_\w+|HDF5_PLUGIN_PATH|KMP_\w+|TF2_BEHAVIOR|TPU_ML_PLATFORM"
_NOT_READ = re.compile(f"{_READ_LATE}|{_ADDRESSES}|{_OURS}|{_OF_TENSORFLOW}")


class Importers:
    """Starts the servers when somebody asks for them. A context manager.

    Over its socket, it gets the descriptors of the standard streams of a process, and a
    request as a line of JSON (`forked.fork`). It answers with lines: the process's id,
    and its exit code when it has ended.

    Args:
      folder: Folder for logs and the socket.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._server = socket.create_server(str(folder / "socket"), family=socket.AF_UNIX)
        self._clients: dict[tuple[str, frozenset[tuple[str, str]]], ForkClient] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "Importers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        for client in self._clients.values():
            client.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the server is shut down
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._fork, args=(connection,), daemon=True).start()

    def _fork(self, connection: socket.socket) -> None:
        """Forks one process, and reports its end."""
        with connection, contextlib.suppress(BrokenPipeError):  # the test process has left
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
            with connection.makefile() as lines:
                line = lines.readline()
            request = json.loads(line)
            reader, writer = os.pipe()  # for its id
            files = [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in (*descriptors, writer)]
            client = self._client(request["prepare"], request["environment"])
            end = client.fork("forked_process:main", [line, *files], {})
            end.add_done_callback(lambda _: os.close(writer))
            pid = os.read(reader, 32)
            for descriptor in (reader, *descriptors):
                os.close(descriptor)
            if pid:
                connection.sendall(pid)
                connection.sendall(b"%d\n" % end.result())

    def _client(self, prepare: str, environment: Mapping[str, str]) -> ForkClient:
        environment = {name: value for name, value in environment.items() if not _NOT_READ.fullmatch(name)}
        key = prepare, frozenset(environment.items())
        with self._lock:
            if key not in self._clients:
                ours = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parent), "TMPDIR": str(self._folder)}
                with (self._folder / f"importer-{len(self._clients)}.log").open("wb") as log:
                    self._clients[key] = ForkClient(prepare, {**environment, **ours}, log)
            return self._clients[key]

"""The local launcher: a training cluster as processes on this machine's loopback."""

import contextlib
import json
import queue
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from absl import logging

from tfx_distribute.components.launchers import gpus
from tfx_distribute.components.launchers.fork_server import ForkServer
from tfx_distribute.trainer_module.cluster import (
    CHIEF_TASK,
    TF_CONFIG,
    Cluster,
    Task,
    replicas_of_roles,
    serves,
    uses_accelerators,
)
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job import TrainingJob, TrainingResult
from tfx_distribute.trainer_module.progress import ERROR_FILE, PROGRESS_FILE, Progress

POLL_SECONDS = 0.1
# After one process failed, what the others are given to fail by themselves, then to end when asked to.
PEERS_SECONDS = 3.0
TERM_SECONDS = 3.0
LAST_LINES = 20

ProgressListener = Callable[[Task, Progress], None]


def _log_progress(task: Task, progress: Progress) -> None:
    logging.info("%s: %s", task, progress)


@dataclass(frozen=True)
class LocalSettings:
    """How training runs on this machine; no matter of the pipeline's result, so no part of its parameters.

    Attributes:
      log_dir: Folder for what each training process prints; None for a new temporary one.
      base_port: First of the consecutive ports that the cluster listens on; 0 for any free ones.
      on_progress: Called with each report of each training process.
      server: A fork server that is started already; None to start one for each training.
      gpus: The GPUs to train on, as CUDA_VISIBLE_DEVICES names them; None for those that this process sees.
    """

    log_dir: Path | None = None
    base_port: int = 0
    on_progress: ProgressListener = _log_progress
    server: ForkServer | None = None
    gpus: tuple[str, ...] | None = None


_settings = LocalSettings()


@contextlib.contextmanager
def settings(new: LocalSettings) -> Iterator[None]:
    """Has trainings within the block run with other settings. TFX makes the executor, so they cannot be passed to it."""
    global _settings
    before, _settings = _settings, new
    try:
        yield
    finally:
        _settings = before


def launch(job: TrainingJob, work_dir: str) -> TrainingResult:
    """Trains a job on this machine.

    Args:
      job: What to train.
      work_dir: A folder that only its owner can read, for the job document and the processes' reports.

    Returns:
      What the chief reports.

    Raises:
      ConfigurationError: A port of the cluster is taken.
      TrainingError: A training process failed; the message holds the end of what it printed.
    """
    log_dir = _settings.log_dir or Path(tempfile.mkdtemp(prefix="tfx-distribute-logs-"))
    log_dir.mkdir(parents=True, exist_ok=True)
    cluster = local_cluster(replicas_of_roles(job.distribution))
    job_file = Path(work_dir) / "job.json"
    job_file.write_text(job.to_json(), encoding="utf-8")
    job_file.chmod(0o600)
    with contextlib.ExitStack() as stack:
        server = _settings.server
        if server is None or server.keras_version != job.schedule.keras_version:
            server = stack.enter_context(ForkServer(log_dir / "fork-server.log", job.schedule.keras_version))
        server.wait_ready()
        processes = [_Process(task, Path(work_dir), log_dir, serves(job.distribution, task)) for task in cluster.tasks]
        stack.callback(_end_all, server, processes)
        for process in processes:
            server.start(process.task.file_name, job_file, process.log, process.environment(job, cluster))
        _follow(server, processes)
    return TrainingResult.read(job.outputs.result_file)


def local_cluster(roles: dict[str, int]) -> Cluster:
    """Gives each process of a cluster an address on loopback.

    Raises:
      ConfigurationError: A port is asked for that is taken.
    """
    names = [Task(role, index) for role, count in roles.items() for index in range(count)]
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        for offset, task in enumerate(names):
            probe = stack.enter_context(socket.socket())
            port = _settings.base_port and _settings.base_port + offset
            # As servers do: a port whose connections are just closing counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise ConfigurationError(
                    f"base_port: port {port}, for {task}, cannot be listened on ({error.strerror}); "
                    f"write another base_port, or leave it out for any {len(names)} free ports"
                ) from error
            ports.append(probe.getsockname()[1])
    return Cluster.of(roles, (f"127.0.0.1:{port}" for port in ports))


@dataclass
class _Process:
    """One process of the cluster, as the launcher sees it.

    Attributes:
      task: Who it is in the cluster.
      work_dir: Where it reports.
      log_dir: Where it prints.
      serves: Whether it goes on for as long as the coordinator does, and is ended then.
      pid: Its process id, once it has started.
      status: Exit code, or minus the number of the signal that ended it; None while it runs.
    """

    task: Task
    work_dir: Path
    log_dir: Path
    serves: bool = False
    pid: int = 0
    status: int | None = None
    _read: int = field(default=0)

    @property
    def log(self) -> Path:
        return self.log_dir / f"{self.task.file_name}.log"

    @property
    def _progress(self) -> Path:
        return self.work_dir / f"{self.task.file_name}.progress"

    @property
    def _error(self) -> Path:
        return self.work_dir / f"{self.task.file_name}.error"

    def environment(self, job: TrainingJob, cluster: Cluster) -> dict[str, str]:
        """What the process is told beside its job: who it is, where it reports, and which GPUs it has."""
        available = gpus.visible() if _settings.gpus is None else list(_settings.gpus)
        # Always set: one that this process has is of another cluster.
        tf_config = cluster.tf_config(self.task) if len(cluster.tasks) > 1 else "{}"
        environment = {PROGRESS_FILE: str(self._progress), ERROR_FILE: str(self._error), TF_CONFIG: tf_config}
        users = [task for task in cluster.tasks if uses_accelerators(job.distribution, task)]
        share: list[str] | None = []
        if self.task in users:
            share = gpus.share(job.distribution, users.index(self.task), len(users), available)
        if share is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(share)
        return environment

    def new_progress(self) -> list[Progress]:
        """The reports since the last call."""
        if not self._progress.exists():
            return []
        with self._progress.open("rb") as file:
            file.seek(self._read)
            complete, _, _ = file.read().rpartition(b"\n")
        if not complete:
            return []
        self._read += len(complete) + 1
        return [Progress.from_json(line.decode()) for line in complete.splitlines()]

    def failure(self) -> str:
        """Why the process failed, in the words a person needs, with the end of what it printed where it died."""
        assert self.status is not None
        if self._error.exists():
            error = json.loads(self._error.read_text(encoding="utf-8"))
            if error["expected"]:
                return str(error["message"])
        how = f"exit code {self.status}" if self.status > 0 else f"killed by {signal.Signals(-self.status).name}"
        lines = self.log.read_text(encoding="utf-8", errors="replace").rstrip().splitlines() if self.log.exists() else []
        return "\n".join(
            [f"training process {self.task} failed ({how}); all it printed is in {self.log}"]
            + [f"  {line}" for line in lines[-LAST_LINES:]]
        )


def _follow(server: ForkServer, processes: list[_Process]) -> None:
    """Passes on progress until all processes have ended well.

    Raises:
      TrainingError: One has not.
    """
    failed: _Process | None = None
    deadline = 0.0
    while any(process.status is None for process in processes if not process.serves):
        _hear(server, processes)
        for process in processes:
            for progress in process.new_progress():
                _settings.on_progress(process.task, progress)
        # The first to fail is the one to name: the others fail because their peer is gone.
        failed = failed or next((process for process in processes if process.status), None)
        if failed and not deadline:
            deadline = time.monotonic() + PEERS_SECONDS
        if failed and time.monotonic() > deadline:
            break
    if failed:
        raise TrainingError(failed.failure())
    assert any(process.task == CHIEF_TASK for process in processes), "every cluster has a chief"


def _hear(server: ForkServer, processes: list[_Process], timeout: float = POLL_SECONDS) -> None:
    """Takes in the server's next answer, if one comes in time."""
    with contextlib.suppress(queue.Empty):
        answer = server.next_answer(timeout)
        for process in processes:
            if process.task.file_name == answer.get("started"):
                process.pid = answer["pid"]
            elif process.pid == answer.get("pid"):
                process.status = answer["status"]


def _end_all(server: ForkServer, processes: list[_Process]) -> None:
    """Ends what still runs, first asking."""
    for number, patience in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, TERM_SECONDS)):
        running = [process for process in processes if process.status is None]
        for process in running:
            server.signal(process.task.file_name, number)
        deadline = time.monotonic() + patience
        while any(process.status is None for process in running) and time.monotonic() < deadline:
            try:
                _hear(server, processes)
            except TrainingError:
                return  # the server is gone, and took its processes along

"""The local launcher: a training cluster as processes on this machine's loopback."""

import contextlib
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from tfx_distribute.components.launchers.local import gpus, loopback
from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.components.launchers.local.processes import LostError, Process, Processes, ProgressListener
from tfx_distribute.components.launchers.local.restart_policy import RestartPolicy
from tfx_distribute.components.launchers.local.silence import SilenceMonitor
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF_TASK,
    TF_CONFIG,
    TRY,
    Cluster,
    ClusterTask,
    is_server,
    replicas_of_roles,
    uses_accelerators,
)
from tfx_distribute.trainer_module.job.training_job import TrainingJob, TrainingResult
from tfx_distribute.trainer_module.lifecycle.progress import LOCAL_HEARTBEATS, Progress

# Heartbeats that a process may miss, while others give them, before it is ended. Where all miss them, the machine may have
# been paused: that is waited for until TensorFlow, too, gives up.
MISSED_HEARTBEATS = 3


def _log_progress(task: ClusterTask, progress: Progress) -> None:
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
    """Trains a job on this machine; again and again from the last save, where processes die of themselves.

    Args:
      job: What to train.
      work_dir: A folder that only its owner can read, for the job document and the processes' reports.

    Returns:
      What the chief reports.

    Raises:
      ConfigurationError: A port of the cluster is taken, or it is none for this machine, or its processes cannot reach each
        other.
      TrainingError: A training process failed; the message holds the end of what it printed.
    """
    strategy_table.check_all_reduce(job.distribution, "this machine")
    log_dir = _settings.log_dir or Path(tempfile.mkdtemp(prefix="tfx-distribute-logs-"))
    log_dir.mkdir(parents=True, exist_ok=True)
    job_file = Path(work_dir) / "job.json"
    _write_private(job_file, job.to_json())
    with contextlib.ExitStack() as stack:
        server = _settings.server
        if server is None or server.keras_version != job.schedule.keras_version:
            server = stack.enter_context(ForkServer(log_dir / "fork-server.log", job.schedule.keras_version))
        exposure = server.wait_ready()
        if sum(replicas_of_roles(job.distribution).values()) > 1:  # one process alone has no server
            _warn(loopback.describe(exposure, server.log))
        stack.enter_context(terminable())
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="tmp-", dir=work_dir))
        restarts = RestartPolicy(job.recovery.max_restarts, _settings.on_progress)
        while True:
            try:
                _train(job, job_file, log_dir, temporary, server, restarts)
                return _result(job, log_dir)
            except LostError as lost:
                if not restarts.allow(lost.failure):
                    raise TrainingError(restarts.describe(lost.failure)) from lost


def _warn(message: str) -> None:
    if message:
        logging.warning(message)
        _settings.on_progress(CHIEF_TASK, Progress("start", message=message))


def _write_private(path: Path, text: str) -> None:
    """Writes a file that its owner alone can read."""
    try:
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TrainingError(
            f"{path} cannot be written ({error.strerror}), and training needs it; free some space there, or set TMPDIR to "
            "another folder"
        ) from error


def _result(job: TrainingJob, log_dir: Path) -> TrainingResult:
    """Returns the chief's report of a training whose processes have all ended with exit code 0."""
    try:
        return TrainingResult.from_json(Path(job.outputs.result_file).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TrainingError(
            f"training process {CHIEF_TASK} ended with exit code 0 before the model was trained; os._exit() in the module "
            f"or in a library does that. All it printed is in {log_dir / CHIEF_TASK.file_name}.log"
        ) from error


def _train(
    job: TrainingJob, job_file: Path, log_dir: Path, temporary: str, server: ForkServer, restarts: RestartPolicy
) -> None:
    """One try."""
    cluster = local_cluster(replicas_of_roles(job.distribution))
    name = uuid.uuid4().hex
    each = [
        Process(
            task,
            job_file,
            # Whatever a process that is killed leaves in its temporary folder is removed with it.
            {**_environment(job, cluster, task), "TMPDIR": temporary, TRY: name},
            job_file.parent,
            log_dir,
            is_server(job.distribution, task),
        )
        for task in cluster.tasks
    ]
    heartbeat = job.recovery.heartbeat_timeout_secs
    silence = SilenceMonitor(MISSED_HEARTBEATS * heartbeat, LOCAL_HEARTBEATS * heartbeat, job.recovery.progress_timeout_secs)
    processes = Processes(server, each, restarts.listen, silence)
    try:
        processes.start()
        processes.follow(restarts.allow)
    except KeyboardInterrupt:
        processes.save_and_end()
        raise
    except TrainingError:
        processes.kill()
        raise
    finally:
        processes.end()


def _environment(job: TrainingJob, cluster: Cluster, task: ClusterTask) -> dict[str, str]:
    """What a process is told beside its job: who it is, and which GPUs it has."""
    available = gpus.visible() if _settings.gpus is None else list(_settings.gpus)
    # Always set: one that this process has is of another cluster.
    environment = {TF_CONFIG: cluster.tf_config(task) if len(cluster.tasks) > 1 else "{}"}
    # NCCL would listen on an address of this machine's network, which all its GPUs have no use for.
    environment["NCCL_SOCKET_IFNAME"] = os.environ.get("NCCL_SOCKET_IFNAME", "lo")
    users = [user for user in cluster.tasks if uses_accelerators(job.distribution, user)]
    share: list[str] | None = []
    if task in users:
        share = gpus.share(job.distribution, users.index(task), len(users), available)
    if share is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(share)
    return environment


def local_cluster(roles: dict[str, int]) -> Cluster:
    """Gives each process of a cluster an address on loopback.

    Raises:
      ConfigurationError: A port is asked for that is taken.
    """
    names = [ClusterTask(role, index) for role, count in roles.items() for index in range(count)]
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

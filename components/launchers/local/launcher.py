"""Launches a training cluster as processes on this machine.

Starts the processes, follows them until they end, and ends them if they must not
continue. They connect over loopback only.
"""

import contextlib
import contextvars
import functools
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from absl import logging

from tfx_distribute.components.launchers.local import gpus, loopback
from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.components.launchers.local.processes import LostError, Process, Processes, ProgressListener
from tfx_distribute.components.launchers.local.progress_log import ProgressLog
from tfx_distribute.components.launchers.local.restart_policy import RestartPolicy
from tfx_distribute.components.launchers.local.silence import SilenceMonitor
from tfx_distribute.components.launchers.restart_budget import RestartBudget
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
from tfx_distribute.trainer_module.lifecycle import saved_step
from tfx_distribute.trainer_module.lifecycle.progress import LOCAL_HEARTBEATS, Progress
from tfx_distribute.trainer_module.user_code import module_copy

# How many heartbeats a process may miss before it is ended, while others give theirs.
# If all miss them, the machine may have been paused: the launcher waits until
# TensorFlow gives up too.
MISSED_HEARTBEATS = 3


@dataclass(frozen=True)
class LocalLauncherSettings:
    """Settings of training on this machine.

    These settings do not affect the pipeline's result, so they are not parameters of
    it.

    Attributes:
      log_dir: Folder for the output of training processes; None for a new temporary
        one.
      base_port: First of the consecutive ports that the cluster listens on; 0 for any
        free ports.
      on_progress: Called with each report of each training process.
      server: Fork server that is already running; None to start one for each training.
      gpus: GPUs to train on, as CUDA_VISIBLE_DEVICES names them; None for those that
        this process can see.
    """

    log_dir: Path | None = None
    base_port: int = 0
    on_progress: ProgressListener = field(default_factory=ProgressLog)
    server: ForkServer | None = None
    gpus: tuple[str, ...] | None = None


# Of each thread, since trials of a search are launched in threads of their own.
_settings = contextvars.ContextVar("local launcher settings", default=LocalLauncherSettings())  # noqa: B039 (frozen)


@contextlib.contextmanager
def settings(new: LocalLauncherSettings) -> Iterator[None]:
    """Temporarily replaces the settings, within the block.

    They cannot be passed to the executor, because TFX creates it.

    Example:
      >>> with settings(LocalLauncherSettings(base_port=20000)):
      ...     launch(job, work_dir)
    """
    token = _settings.set(new)
    try:
        yield
    finally:
        _settings.reset(token)


def current_settings() -> LocalLauncherSettings:
    """Returns the settings of this thread."""
    return _settings.get()


def launch(job: TrainingJob, work_dir: str) -> TrainingResult:
    """Trains in processes of this machine, and returns when they have succeeded.

    If processes die, training starts again from the last save, as `job.fault_tolerance`
    allows.

    Args:
      job: The training job.
      work_dir: Folder for the job document and the processes' reports; only its owner
        may be able to read it.

    Returns:
      The chief's result.

    Raises:
      ConfigurationError: A port of the cluster is in use, this machine cannot run the
        cluster, or its processes cannot connect to each other.
      TrainingError: A training process failed; the message has its last lines.
    """
    strategy_table.check_all_reduce(job.distribution, "this machine")
    log_dir = current_settings().log_dir or Path(tempfile.mkdtemp(prefix="tfx-distribute-logs-"))
    log_dir.mkdir(parents=True, exist_ok=True)
    job_file, result_file = Path(work_dir) / "job.json", Path(job.outputs.result_file)
    result_file.unlink(missing_ok=True)
    _write_private(job_file, job.to_json())
    with contextlib.ExitStack() as stack:
        server = current_settings().server
        if server is None or server.keras_version != job.training_options.keras_version:
            server = stack.enter_context(ForkServer(log_dir / "fork-server.log", job.training_options.keras_version))
        exposure = server.wait_ready()
        if sum(replicas_of_roles(job.distribution).values()) > 1:  # a single process has no server
            _warn_if(loopback.describe(exposure, server.log))
        stack.enter_context(terminable())
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="tmp-", dir=work_dir))
        read_step = functools.partial(saved_step.read, job.outputs.checkpoint_dir)
        budget = RestartBudget(job.fault_tolerance.max_restarts, read_step)
        restarts = RestartPolicy(budget, current_settings().on_progress)
        while True:
            try:
                _run_attempt(job, job_file, log_dir, temporary, server, restarts)
                break
            except LostError as lost:
                if result_file.exists():  # the chief writes it last: the model is complete
                    logging.warning("%s; the model is complete", lost)
                    break
                if not restarts.allow(lost.failure):
                    raise TrainingError(restarts.describe(lost.failure)) from lost
        return TrainingResult.from_json(result_file.read_text(encoding="utf-8"))


def local_cluster(roles: dict[str, int]) -> Cluster:
    """Assigns each process of a cluster an address on loopback.

    Args:
      roles: Role -> number of its processes.

    Raises:
      ConfigurationError: A port from `base_port` on is in use.
    """
    tasks = [ClusterTask(role, index) for role, count in roles.items() for index in range(count)]
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        for offset, task in enumerate(tasks):
            probe = stack.enter_context(socket.socket())
            port = current_settings().base_port and current_settings().base_port + offset
            # As servers do: a port counts as free while its last connections close.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise ConfigurationError(
                    f"base_port: port {port}, for {task}, cannot be listened on ({error.strerror}); "
                    f"write another base_port, or leave it out for any {len(tasks)} free ports"
                ) from error
            ports.append(probe.getsockname()[1])
    return Cluster.of(roles, (f"127.0.0.1:{port}" for port in ports))


def _warn_if(message: str) -> None:
    """Logs and reports a warning, unless it is empty."""
    if message:
        logging.warning(message)
        current_settings().on_progress(CHIEF_TASK, Progress("start", message=message))


def _write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read."""
    try:
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TrainingError(
            f"{path} cannot be written ({error.strerror}), and training needs it; free some space there, or set TMPDIR to "
            "another folder"
        ) from error


def _run_attempt(
    job: TrainingJob, job_file: Path, log_dir: Path, temporary: str, server: ForkServer, restarts: RestartPolicy
) -> None:
    """Runs all processes of the cluster once, until they end."""
    cluster = local_cluster(replicas_of_roles(job.distribution))
    attempt = uuid.uuid4().hex
    cluster_processes = [
        Process(
            task,
            job_file,
            # A killed process leaves temporary files, which are removed with this
            # folder.
            {**_environment(job, cluster, task), "TMPDIR": temporary, TRY: attempt},
            job_file.parent,
            log_dir,
            is_server(job.distribution, task),
            # It alone may load the driver of TPUs, and the server has not.
            imports_tensorflow=job.distribution.strategy == "tpu",
        )
        for task in cluster.tasks
    ]
    heartbeat = job.fault_tolerance.heartbeat_timeout_secs
    silence = SilenceMonitor(
        MISSED_HEARTBEATS * heartbeat, LOCAL_HEARTBEATS * heartbeat, job.fault_tolerance.progress_timeout_secs
    )
    processes = Processes(server, cluster_processes, restarts.listen, silence)
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
    """Returns the environment variables for a process: its task and its GPUs."""
    own_gpus = current_settings().gpus
    available = gpus.list_visible() if own_gpus is None else list(own_gpus)
    # Set in any case: this process may have one of another cluster.
    environment = {TF_CONFIG: cluster.tf_config(task) if len(cluster.tasks) > 1 else "{}"}
    # The fork server may be older than the copy of the module.
    environment |= module_copy.environment()
    # NCCL would listen on the machine's network, which GPUs of one machine do not need.
    environment["NCCL_SOCKET_IFNAME"] = os.environ.get("NCCL_SOCKET_IFNAME", "lo")
    gpu_tasks = [other for other in cluster.tasks if uses_accelerators(job.distribution, other)]
    assigned: list[str] | None = []
    if task in gpu_tasks:
        assigned = gpus.assign(job.distribution, gpu_tasks.index(task), len(gpu_tasks), available)
    if assigned is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(assigned)
    return environment

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from absl import logging

from tfx_distribute.components.launchers.launcher import Launcher, Limits, Request, State, Training, follow
from tfx_distribute.components.launchers.local import gpus, loopback
from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.components.launchers.local.processes import Process, Processes, ProgressListener
from tfx_distribute.components.launchers.progress_log import ProgressLog
from tfx_distribute.components.launchers.restarts import Restarts
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF_TASK,
    TF_CONFIG,
    Cluster,
    ClusterTask,
    is_server,
    replicas_of_roles,
    tasks_of,
    uses_accelerators,
)
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.reporting.progress import LOCAL_HEARTBEATS, Progress
from tfx_distribute.trainer_module.state import saved_step
from tfx_distribute.trainer_module.user_code import module_copy


@dataclass(frozen=True)
class LocalLauncherSettings:
    """Settings of training on this machine.

    These settings do not affect the pipeline's result, so they are not parameters of
    it.

    Attributes:
      log_dir: Folder for the output of training processes; None for a new temporary
        one.
      on_progress: Called with each report of each training process.
      server: Fork server that is already running; None to start one for each training.
      gpus: GPUs to train on, as CUDA_VISIBLE_DEVICES names them; None for those that
        this process can see.
    """

    log_dir: Path | None = None
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
      >>> with settings(LocalLauncherSettings(gpus=("0", "1"))):
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


def launch(job: TrainingJob, work_dir: str, is_stopped: Callable[[], bool] = lambda: False) -> TrainingResult:
    """Trains in processes of this machine, and returns the chief's result.

    If processes die, training starts again from the last save, as `job.fault_tolerance`
    allows. `work_dir` gets the job document and the processes' reports; only its owner
    may be able to read it. `is_stopped` returns True if the training has to end.

    Raises:
      ConfigurationError: This machine cannot run the cluster, or its processes cannot
        connect to each other.
      TrainingError: A training process failed; the message has its last lines.
    """
    strategy_table.check_all_reduce(job.distribution, "this machine")
    log_dir = current_settings().log_dir or Path(tempfile.mkdtemp(prefix="tfx-distribute-logs-"))
    log_dir.mkdir(parents=True, exist_ok=True)
    job_file, result_file = Path(work_dir) / "job.json", Path(job.outputs.result_file)
    result_file.unlink(missing_ok=True)
    job_file.touch(mode=0o600)  # only its owner can read it
    job_file.write_text(job.to_json(), encoding="utf-8")
    keras_version, max_restarts = job.training_options.keras_version, job.fault_tolerance.max_restarts
    with contextlib.ExitStack() as stack:
        server = current_settings().server
        if server is None or server.keras_version != keras_version:
            server = stack.enter_context(ForkServer(log_dir / "fork-server.log", keras_version))
        exposure = server.wait_ready()
        if len(tasks_of(job.distribution)) > 1:  # a single process has no server
            _warn_if(loopback.describe(exposure))
        stack.enter_context(terminable())
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="tmp-", dir=work_dir))
        restarts = Restarts(max_restarts, functools.partial(saved_step.read, job.outputs.checkpoint_dir), _report)
        launcher = LocalLauncher(replace(current_settings(), log_dir=log_dir, server=server), job, restarts)
        # A killed process leaves temporary files, which are removed with this folder.
        training = Training(job_file.stem, str(job_file), job.distribution, {"TMPDIR": temporary}, max_restarts)
        follow(launcher, launcher.request(training), Limits(restarts, is_stopped=is_stopped))
    if not result_file.exists():  # the module has called os._exit(0)
        raise TrainingError(f"training succeeded, but its chief did not write {result_file}; see {log_dir}")
    return TrainingResult.from_json(result_file.read_text(encoding="utf-8"))


class LocalLauncher(Launcher[Any]):
    """Runs the processes of one training on this machine.

    The settings have a fork server that is ready and a folder for logs. `restarts`
    decides if a worker of a parameter server strategy is started again while the others
    continue.
    """

    poll_seconds = 0.0  # `state` waits for the processes

    def __init__(self, settings: LocalLauncherSettings, job: TrainingJob, restarts: Restarts):
        super().__init__(settings)
        self._job, self._restarts = job, restarts
        self._processes: Processes | None = None

    def request(self, training: Training) -> Request:
        """Returns the job's file, and the environment of each process."""
        tasks = tasks_of(training.distribution)
        own_gpus = self.settings.gpus
        available = gpus.list_visible() if own_gpus is None else list(own_gpus)
        environments = {
            task.file_name: {**training.environment, **_environment(training.distribution, task, tasks, available)}
            for task in tasks
        }
        return {"job": training.job_address, "environments": environments}

    def start(self, request: Request, has_result: bool) -> bool:
        """Starts all processes; those of an earlier attempt have ended with it."""
        if has_result:
            return False
        distribution, tolerance = self._job.distribution, self._job.fault_tolerance
        cluster = local_cluster(replicas_of_roles(distribution))
        job_file = Path(request["job"])
        processes = [
            Process(
                task,
                job_file,
                {
                    **request["environments"][task.file_name],
                    # Set in any case: this process may have one of another cluster.
                    TF_CONFIG: cluster.tf_config(task) if len(cluster.tasks) > 1 else "{}",
                },
                job_file.parent,
                self.settings.log_dir,
                is_server(distribution, task),
                # It alone may load the driver of TPUs, and the server has not.
                imports_tensorflow=distribution.strategy == "tpu",
            )
            for task in cluster.tasks
        ]
        # Before TensorFlow gives up, which does not name the process that hangs.
        # Processes that were suspended together for a shorter time go on.
        silent_limit = LOCAL_HEARTBEATS / 2 * tolerance.heartbeat_timeout_secs
        listener, may_restart = self.settings.on_progress, self._restarts.allow
        self._processes = Processes(self.settings.server, processes, listener, silent_limit, may_restart)
        self._processes.start()
        return True

    def state(self) -> State:
        """Passes on progress for a moment; ends what still runs when training ends."""
        assert self._processes is not None
        state = self._processes.state()
        if state.phase == "succeeded":
            self._processes.end()
        elif state.failure:
            self._processes.kill()  # a cluster that lost a process cannot save any more
            # The chief writes it last.
            if not state.failure.is_final and Path(self._job.outputs.result_file).exists():
                return State("succeeded", f"{state.failure.message}; the model is complete")
        return state

    def stop(self, has_time: bool) -> None:
        """Has all processes save after a signal to this one; kills them otherwise."""
        if self._processes is not None:
            (self._processes.kill if has_time else self._processes.save_and_end)()


def local_cluster(roles: dict[str, int]) -> Cluster:
    """Assigns each process of a cluster an address on loopback, with any free port."""
    addresses = []
    with contextlib.ExitStack() as stack:
        for _ in range(sum(roles.values())):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{probe.getsockname()[1]}")
    return Cluster.of(roles, addresses)


def _warn_if(message: str) -> None:
    """Logs and reports a warning, unless it is empty."""
    if message:
        logging.warning(message)
        _report(message)


def _report(message: str) -> None:
    current_settings().on_progress(CHIEF_TASK, Progress("start", message=message))


def _environment(
    distribution: Distribution, task: ClusterTask, tasks: Sequence[ClusterTask], available: list[str]
) -> dict[str, str]:
    """Returns the environment variables for a process, the same at each start."""
    # The fork server may be older than the copy of the module.
    environment = module_copy.environment()
    # NCCL would listen on the machine's network, which one machine's GPUs do not need.
    environment["NCCL_SOCKET_IFNAME"] = os.environ.get("NCCL_SOCKET_IFNAME", "lo")
    gpu_tasks = [other for other in tasks if uses_accelerators(distribution, other)]
    assigned: list[str] | None = []
    if task in gpu_tasks:
        assigned = gpus.assign(distribution, gpu_tasks.index(task), len(gpu_tasks), available)
    if assigned is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(assigned)
    return environment

"""Launches a training cluster as processes on this machine.

Starts the processes, follows them until they end, and ends them if they must not
continue. They connect over loopback only.
"""

import contextlib
import contextvars
import functools
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from absl import logging

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.launcher import (
    Failure,
    Launcher,
    Limits,
    Request,
    Restarts,
    State,
    Training,
    follow,
)
from tfx_distribute.components.launchers.local import gpus, loopback
from tfx_distribute.components.launchers.local.fork_client import ForkServer, last_lines
from tfx_distribute.components.launchers.local.process import Process
from tfx_distribute.components.launchers.progress_log import ProgressLog
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF_TASK,
    TF_CONFIG,
    WORKER,
    Cluster,
    ClusterTask,
    is_server,
    replicas_of_roles,
    tasks_of,
    uses_accelerators,
)
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.liveness import exit_codes, preemption
from tfx_distribute.trainer_module.reporting.progress import LOCAL_HEARTBEATS, REPORT_SECONDS, Progress
from tfx_distribute.trainer_module.state import saved_step
from tfx_distribute.trainer_module.user_code import module_copy

# Exit codes usually caused by another process's failure, and for how many seconds to
# wait for the end of that one.
SECONDARY_EXIT_GRACE = {exit_codes.PEER_LOST: 3.0, exit_codes.PREEMPTED: timeouts.SAVE_SECONDS, -signal.SIGABRT: 3.0}

_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MAX_LENGTH = 160  # of a line that a `run_fn` has printed

ProgressListener = Callable[[ClusterTask, Progress], None]


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
        # A single process has no server.
        warning = loopback.describe(exposure) if len(tasks_of(job.distribution)) > 1 else ""
        if warning:
            logging.warning(warning)
            _report(warning)
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
        self._all: list[Process] = []
        self._shown_at = 0.0
        self._deadline: float | None = None  # for the ends of others, after one has failed
        # Before TensorFlow gives up, which does not name the process that hangs.
        # Processes that were suspended together for a shorter time go on.
        self._silent_limit = LOCAL_HEARTBEATS / 2 * job.fault_tolerance.heartbeat_timeout_secs

    def request(self, training: Training) -> Request:
        """Returns the job's file, and the environment of each process."""
        tasks = tasks_of(training.distribution)
        available = gpus.list_visible() if self.settings.gpus is None else list(self.settings.gpus)
        environments = {
            task.file_name: {**training.environment, **_environment(training.distribution, task, tasks, available)}
            for task in tasks
        }
        return {"job": training.job_address, "environments": environments}

    def start(self, request: Request, has_result: bool) -> bool:
        """Starts all processes; those of an earlier attempt have ended with it."""
        if has_result:
            return False
        distribution, job_file = self._job.distribution, Path(request["job"])
        cluster = local_cluster(replicas_of_roles(distribution))
        self._deadline = None
        self._all = [
            Process(
                task,
                job_file,
                {
                    **request["environments"][task.file_name],
                    # Set in any case: this process may have one of another cluster.
                    TF_CONFIG: cluster.tf_config(task) if len(cluster.tasks) > 1 else "{}",
                },
                self.settings.log_dir,
                is_server(distribution, task),
                # It alone may load the driver of TPUs, and the server has not.
                imports_tensorflow=distribution.strategy == "tpu",
            )
            for task in cluster.tasks
        ]
        for process in self._all:
            process.start(self.settings.server)
        return True

    def state(self) -> State:
        """Passes on progress for a moment; ends what still runs when training ends.

        It has succeeded when all processes have that are not servers.

        Raises:
          TrainingError: The fork server has ended.
        """
        self._wait()
        self._pass_on()
        failed = [process for process in self._all if process.status]
        for process in failed:
            self._handle_end(process, is_alone=len(failed) == 1)
        is_over = self._deadline is not None and time.monotonic() >= self._deadline
        if not is_over and any(process.status is None for process in self._training):
            return State("running")
        failure = self._find_cause()
        if failure is None:
            self._end()
            return State("succeeded")
        self._kill()
        # The chief writes it last.
        if not failure.is_final and Path(self._job.outputs.result_file).exists():
            return State("succeeded", f"{failure.message}; the model is complete")
        return State("failed", failure=failure)

    def stop(self, has_time: bool) -> None:
        """Has all processes save after a signal to this one; kills them otherwise."""
        if has_time:
            self._kill()
            return
        try:
            self._signal(self._training, signal.SIGTERM, preemption.launcher_seconds(os.environ))
        finally:  # also after a second Ctrl-C, which ends the wait
            self._end()

    @property
    def _training(self) -> list[Process]:
        return [process for process in self._all if not process.is_server]

    def _handle_end(self, process: Process, is_alone: bool) -> None:
        """Starts a failed process again, or sets a deadline for the others."""
        status = process.status or 0
        # The coordinator continues without it, and gives it work once it is back.
        is_replaceable = process.is_server and process.task.role == WORKER and is_alone and self._deadline is None
        if is_replaceable and not process.failure().is_final and self._restarts.allow(process.failure()):
            process.start(self.settings.server)
        elif self._deadline is None or status not in SECONDARY_EXIT_GRACE:
            self._deadline = time.monotonic() + SECONDARY_EXIT_GRACE.get(status, 0.0)

    def _find_cause(self) -> Failure | None:
        """Returns the failure of the process that failed first; None if none has."""
        failures = [(process.status, process.failure()) for process in self._all if process.status]
        # The others only lost it.
        failures.sort(key=lambda item: (not item[1].is_final, item[0] in SECONDARY_EXIT_GRACE))
        return failures[0][1] if failures else None

    def _end(self) -> None:
        self._signal(self._all, signal.SIGTERM, timeouts.TERM_SECONDS)
        self._kill()

    def _kill(self) -> None:
        """Kills what still runs: a cluster that lost a process cannot save any more."""
        self._signal(self._all, signal.SIGKILL, timeouts.TERM_SECONDS)

    def _signal(self, processes: list[Process], number: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        try:
            for process in processes:
                if process.end and process.status is None:
                    self.settings.server.signal(process.end, number)
            while any(process.status is None for process in processes) and time.monotonic() < deadline:
                self._wait()
                self._pass_on()
        except TrainingError:
            pass  # the server has ended, and its processes with it

    def _pass_on(self) -> None:
        """Passes on new reports, and kills processes that hang."""
        now, chief, tell = time.monotonic(), self._all[0], self.settings.on_progress
        for process in self._all:
            for progress in process.new_progress():
                if not progress.stalled_secs:
                    tell(process.task, progress)
                    continue
                words = (
                    f"waiting for {process.task}, which has been in {progress.activity} for {progress.stalled_secs:.0f} s"
                )
                shown = chief.progress or Progress("start")
                tell(CHIEF_TASK, replace(shown, activity="", stalled_secs=0.0, message=words))
            if process.end and process.status is None and (silent := process.seconds_without_sign(now)) > self._silent_limit:
                process.silent_seconds = process.silent_seconds or silent
                self.settings.server.signal(process.end, signal.SIGKILL)
        # Of a `run_fn`, nothing is known but what it prints.
        if chief.progress and chief.progress.phase == "run_fn" and now - self._shown_at >= REPORT_SECONDS:
            self._shown_at = now
            if lines := last_lines(chief.log):
                line = _COLORS.sub("", lines[-1]).strip()[:_MAX_LENGTH]
                tell(CHIEF_TASK, replace(chief.progress, activity=line))

    def _wait(self) -> None:
        running = {process.end: process for process in self._all if process.end and process.status is None}
        ended, _ = futures.wait(running, timeouts.POLL_SECONDS, futures.FIRST_COMPLETED)
        self.settings.server.check()
        for end in ended:
            running[end].status = end.result()


def local_cluster(roles: dict[str, int]) -> Cluster:
    """Assigns each process of a cluster an address on loopback, with any free port."""
    addresses = []
    with contextlib.ExitStack() as stack:
        for _ in range(sum(roles.values())):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{probe.getsockname()[1]}")
    return Cluster.of(roles, addresses)


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

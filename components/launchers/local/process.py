"""Starts, follows and ends the processes of a local training cluster."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.launcher import State
from tfx_distribute.components.launchers.local import log_tail
from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.components.launchers.restarts import Failure
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ERROR_FILE_VARIABLE, WORKER, ClusterTask
from tfx_distribute.trainer_module.liveness import exit_codes, failure_report, termination
from tfx_distribute.trainer_module.reporting.progress import PROGRESS_FILE, REPORT_SECONDS, Progress

# Exit codes usually caused by another process's failure, and for how many seconds to
# wait for the end of that one.
SECONDARY_EXIT_GRACE = {exit_codes.PEER_LOST: 3.0, exit_codes.PREEMPTED: timeouts.SAVE_SECONDS, -signal.SIGABRT: 3.0}

_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MAX_LENGTH = 160  # of a line that a `run_fn` has printed

ProgressListener = Callable[[ClusterTask, Progress], None]


@dataclass
class Process:
    """One process of the cluster.

    Attributes:
      work_dir: Folder that it writes its reports to.
      is_server: True if it runs for as long as the coordinator does, and is ended then.
      imports_tensorflow: As in `ForkServer.start`.
      end: Its exit code, once it is started.
      status: Exit code, or minus the number of the signal that ended it; None while it
        runs.
      silent_seconds: Seconds for which it was silent when it was killed for that; 0 if
        it was not.
    """

    task: ClusterTask
    job_file: Path
    environment: Mapping[str, str]
    work_dir: Path
    log_dir: Path
    is_server: bool = False
    imports_tensorflow: bool = False
    end: "futures.Future[int] | None" = None
    status: int | None = None
    silent_seconds: float = 0.0
    progress: Progress | None = None
    _bytes_read: int = field(default=0)  # of its reports
    _last_sign: int = field(default=0)
    _last_sign_at: float = field(default=0.0)

    @property
    def log(self) -> Path:
        """Returns the file with its output."""
        return self.log_dir / f"{self.task.file_name}.log"

    @property
    def _progress_file(self) -> Path:
        return self.work_dir / f"{self.task.file_name}.progress"

    @property
    def _error_file(self) -> Path:
        return self.work_dir / f"{self.task.file_name}.error"

    def start(self, server: ForkServer) -> None:
        """Starts it, for the first time or again."""
        self._error_file.unlink(missing_ok=True)
        self._progress_file.write_bytes(b"")  # creates it before the disk can be full
        self.status, self.silent_seconds, self.progress, self._bytes_read = None, 0.0, None, 0
        files = {PROGRESS_FILE: str(self._progress_file), ERROR_FILE_VARIABLE: str(self._error_file)}
        environment = {**self.environment, **files}
        self.end = server.start(self.job_file, self.log, environment, self.imports_tensorflow)

    def new_progress(self) -> list[Progress]:
        """Returns the reports since the last call."""
        with self._progress_file.open("rb") as file:
            file.seek(self._bytes_read)
            complete, _, _ = file.read().rpartition(b"\n")
        if not complete:
            return []
        self._bytes_read += len(complete) + 1
        reports = []
        for line in complete.splitlines():
            with contextlib.suppress(ValueError, TypeError):  # cut short by a full disk
                reports.append(Progress.from_json(line.decode()))
        self.progress = reports[-1] if reports else self.progress
        return reports

    def seconds_without_sign(self, now: float) -> float:
        """Returns the seconds since it last touched its file of reports."""
        with contextlib.suppress(FileNotFoundError):
            last_sign = self._progress_file.stat().st_mtime_ns
            if last_sign != self._last_sign:
                self._last_sign, self._last_sign_at = last_sign, now
        return now - self._last_sign_at

    def failure(self) -> Failure:
        """Describes why it failed, with its last lines if it reported no reason."""
        assert self.status is not None
        is_final = exit_codes.is_final(self.status)
        report = failure_report.Failure.read(str(self._error_file))
        if report and report.expected:
            return Failure(report.message, is_final)
        how = f"exit code {self.status}" if self.status > 0 else f"killed by {signal.Signals(-self.status).name}"
        if self.silent_seconds:
            how = (
                f"it gave no sign of life for {self.silent_seconds:.0f} s; if it needs more time, write a larger "
                "heartbeat_timeout_secs"
            )
        elif self.status == -signal.SIGKILL:
            how += ", as when memory runs out: write a smaller batch"
        message = "\n".join(
            [f"training process {self.task} failed ({how}); all it printed is in {self.log}"]
            + [f"  {line}" for line in log_tail.last_lines(self.log)]
        )
        return Failure(message, is_final)


class Processes:
    """All processes of one attempt.

    A process without a sign of life for `silent_limit` seconds is killed. `may_restart`
    is called when a worker that is a server has died, and returns True to start it
    again.
    """

    def __init__(
        self,
        server: ForkServer,
        processes: list[Process],
        on_progress: ProgressListener,
        silent_limit: float,
        may_restart: Callable[[Failure], bool] = lambda failure: False,
    ):
        self._server = server
        self._all = processes
        self._training = [process for process in processes if not process.is_server]
        self._on_progress = on_progress
        self._silent_limit = silent_limit
        self._may_restart = may_restart
        self._shown_at = 0.0
        self._deadline: float | None = None  # for the ends of others, after one has failed

    def start(self) -> None:
        """Starts all of them."""
        for process in self._all:
            process.start(self._server)

    def state(self) -> State:
        """Passes on progress for a moment, and returns the state of the training.

        It has succeeded when all processes have that are not servers. After a failure,
        or a success, some may still be running.

        Raises:
          TrainingError: The fork server has ended.
        """
        self._wait()
        self._pass_on()
        failed = [process for process in self._all if process.status]
        for process in failed:
            self._handle_end(process, is_alone=len(failed) == 1)
        if self._deadline is not None and (time.monotonic() >= self._deadline or self._have_saved()):
            return State("failed", failure=self._find_cause())
        if any(process.status is None for process in self._all if not process.is_server):
            return State("running")
        failure = self._find_cause()
        return State("failed" if failure else "succeeded", failure=failure)

    def _handle_end(self, process: Process, is_alone: bool) -> None:
        """Starts a failed process again, or sets a deadline for the others."""
        status = process.status or 0
        # The coordinator continues without it, and gives it work once it is back.
        is_replaceable = process.is_server and process.task.role == WORKER and is_alone and self._deadline is None
        if is_replaceable and not process.failure().is_final and self._may_restart(process.failure()):
            process.start(self._server)
        elif self._deadline is None or status not in SECONDARY_EXIT_GRACE:
            self._deadline = time.monotonic() + SECONDARY_EXIT_GRACE.get(status, 0.0)

    def _find_cause(self) -> Failure | None:
        """Returns the failure of the process that failed first; None if none has."""
        failures = [(process.status, process.failure()) for process in self._all if process.status]
        # The others only lost it.
        failures.sort(key=lambda item: (not item[1].is_final, item[0] in SECONDARY_EXIT_GRACE))
        return failures[0][1] if failures else None

    def _have_saved(self) -> bool:
        """Returns True if one was asked to stop, and all that may save have ended."""
        is_preempted = any(process.status == exit_codes.PREEMPTED for process in self._all)
        return is_preempted and all(process.status is not None for process in self._training)

    def save_and_end(self) -> None:
        """Ends all processes, after they have had time to save."""
        try:
            self._signal(self._training, signal.SIGTERM, termination.launcher_seconds(os.environ))
        finally:  # also after a second Ctrl-C, which ends the wait
            self.end()

    def end(self) -> None:
        """Ends what still runs: first with SIGTERM, then with SIGKILL."""
        self._signal(self._all, signal.SIGTERM, timeouts.TERM_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kills what still runs: a cluster that lost a process cannot save any more."""
        self._signal(self._all, signal.SIGKILL, timeouts.TERM_SECONDS)

    def _signal(self, processes: list[Process], number: int, timeout: float) -> None:
        """Sends a signal to processes, and waits for their end until time is up."""
        deadline = time.monotonic() + timeout
        try:
            self._send(processes, number)
            while any(process.status is None for process in processes) and time.monotonic() < deadline:
                self._wait()
                self._pass_on()
        except TrainingError:
            pass  # the server has ended, and its processes with it

    def _send(self, processes: list[Process], number: int) -> None:
        """Sends a signal to those of the processes that are running."""
        for process in processes:
            if process.end and process.status is None:
                self._server.signal(process.end, number)

    def _pass_on(self) -> None:
        """Passes on new reports, and kills processes that hang."""
        for process in self._all:
            for progress in process.new_progress():
                if not progress.stalled_secs:
                    self._on_progress(process.task, progress)
                    continue
                words = (
                    f"waiting for {process.task}, which has been in {progress.activity} for {progress.stalled_secs:.0f} s"
                )
                chief = next((each.progress for each in self._all if each.task == CHIEF_TASK), None) or Progress("start")
                self._on_progress(CHIEF_TASK, replace(chief, activity="", stalled_secs=0.0, message=words))
        now = time.monotonic()
        self._show_printed(now)
        for process in self._all:
            if process.end and process.status is None and (silent := process.seconds_without_sign(now)) > self._silent_limit:
                process.silent_seconds = process.silent_seconds or silent
                self._server.signal(process.end, signal.SIGKILL)

    def _show_printed(self, now: float) -> None:
        """Passes on the last line of a `run_fn`: nothing else is known of it."""
        chief = next((each for each in self._all if each.task == CHIEF_TASK), None)
        is_due = now - self._shown_at >= REPORT_SECONDS
        if is_due and chief and chief.progress and chief.progress.phase == "run_fn":
            self._shown_at = now
            if lines := log_tail.last_lines(chief.log):
                line = _COLORS.sub("", lines[-1]).strip()[:_MAX_LENGTH]
                self._on_progress(CHIEF_TASK, replace(chief.progress, activity=line))

    def _wait(self) -> None:
        """Waits a moment for the end of a process."""
        running = {process.end: process for process in self._all if process.end and process.status is None}
        ended, _ = futures.wait(running, timeouts.POLL_SECONDS, futures.FIRST_COMPLETED)
        self._server.check()
        for end in ended:
            running[end].status = end.result()

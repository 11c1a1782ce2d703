"""Starts a process of a local training cluster, and reads what it reports."""

import contextlib
import signal
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

from tfx_distribute.components.launchers.launcher import Failure
from tfx_distribute.components.launchers.local.fork_client import ForkServer, last_lines
from tfx_distribute.trainer_module.job.cluster import ERROR_FILE_VARIABLE, ClusterTask
from tfx_distribute.trainer_module.liveness import exit_codes, failure_report
from tfx_distribute.trainer_module.reporting import history
from tfx_distribute.trainer_module.reporting.progress import PROGRESS_FILE, Progress


@dataclass
class Process:
    """One process of the cluster.

    Attributes:
      job_file: The job's document, in the folder that it writes its reports to.
      is_server: True if it runs for as long as the coordinator does, and is ended then.
      end: Its exit code, once it is started.
      status: Exit code, or minus the number of the signal that ended it; None while it
        runs.
      silent_seconds: Seconds for which it was silent when it was killed for that; 0 if
        it was not.
    """

    task: ClusterTask
    job_file: Path
    environment: Mapping[str, str]
    log_dir: Path
    is_server: bool = False
    imports_tensorflow: bool = False
    end: "futures.Future[int] | None" = None
    status: int | None = None
    silent_seconds: float = 0.0
    progress: Progress | None = None
    _bytes_read: int = 0  # of its reports
    _last_sign: int = 0
    _last_sign_at: float = 0.0

    @property
    def log(self) -> Path:
        """Returns the file with its output."""
        return self.log_dir / f"{self.task.file_name}.log"

    @property
    def _progress_file(self) -> Path:
        return self.job_file.with_name(f"{self.task.file_name}.progress")

    @property
    def _error_file(self) -> Path:
        return self.job_file.with_name(f"{self.task.file_name}.error")

    def start(self, server: ForkServer) -> None:
        """Starts it, for the first time or again."""
        self._error_file.unlink(missing_ok=True)
        self._progress_file.write_bytes(b"")  # creates it before the disk can be full
        self.status, self.silent_seconds, self.progress, self._bytes_read = None, 0.0, None, 0
        files = {PROGRESS_FILE: str(self._progress_file), ERROR_FILE_VARIABLE: str(self._error_file)}
        self.end = server.start(self.job_file, self.log, {**self.environment, **files}, self.imports_tensorflow)

    def new_progress(self) -> list[Progress]:
        """Returns the reports since the last call."""
        with self._progress_file.open("rb") as file:
            file.seek(self._bytes_read)
            complete, _, _ = file.read().rpartition(b"\n")
        if not complete:
            return []
        self._bytes_read += len(complete) + 1
        reports = history.parse(complete.splitlines())  # without lines that a full disk has cut short
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
            + [f"  {line}" for line in last_lines(self.log)]
        )
        return Failure(message, is_final)

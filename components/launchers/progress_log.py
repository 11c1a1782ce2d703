"""Logs the progress of a training for people to read."""

import time

from absl import logging

from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.reporting.progress import Progress

# Seconds between two lines about the same work in a log, and their share of the time
# since it began, if that is more. A day of work has about 90 lines.
LOG_SECONDS, LOG_SHARE = 5.0, 0.1


def log_interval(elapsed: float) -> float:
    """Returns the seconds between log lines about work of `elapsed` seconds so far."""
    return max(LOG_SECONDS, LOG_SHARE * elapsed)


def _describe(progress: Progress) -> str:
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in progress.metrics.items())
    where = f"training step {progress.step} of {progress.train_steps}" if progress.train_steps else ""
    stall = f"no progress for {progress.stalled_secs:.0f} s in {progress.activity}" if progress.stalled_secs else ""
    printed = progress.activity if progress.phase == "run_fn" and not stall else ""
    return "; ".join(filter(None, (progress.phase, printed, where, metrics, stall, progress.message)))


class ProgressLog:
    """Logs reports of training processes, rarer the longer training takes.

    Reports with a message, and those of other phases than `train`, are all logged.
    """

    def __init__(self) -> None:
        self._started: dict[ClusterTask, float] = {}
        self._logged: dict[ClusterTask, float] = {}

    def __call__(self, task: ClusterTask, progress: Progress) -> None:
        """Logs a report, if one is due."""
        now = time.monotonic()
        if progress.phase == "start" or task not in self._started:
            self._started[task] = now
        is_early = now - self._logged.get(task, 0.0) < log_interval(now - self._started[task])
        if is_early and progress.phase in ("train", "run_fn") and not (progress.message or progress.stalled_secs):
            return
        self._logged[task] = now
        logging.info("%s: %s", task, _describe(progress))

"""Logs the progress of a training at growing intervals."""

import time

from absl import logging

from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.reporting.progress import Progress, describe, log_interval


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
        logging.info("%s: %s", task, describe(progress))

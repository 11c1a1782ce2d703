"""Decides if, and how soon, a cluster that lost a process is started again."""

import time

from absl import logging

from tfx_distribute.components.launchers.local.processes import ClusterFailure, ProgressListener
from tfx_distribute.components.launchers.restart_budget import RestartBudget
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.lifecycle.progress import Progress

MAX_SECONDS = 30.0  # between two attempts


class RestartPolicy:
    """Decides on the restarts of one training.

    Args:
      budget: Counts the restarts.
      on_progress: Called for each restart, and for each report of a training process.
    """

    def __init__(self, budget: RestartBudget, on_progress: ProgressListener):
        self._budget = budget
        self._on_progress = on_progress
        self._step = self._step_at_restart = 0
        self._last_failure: ClusterFailure | None = None

    def listen(self, task: ClusterTask, progress: Progress) -> None:
        """Notes a report, and passes it on."""
        self._step = max(self._step, progress.step if task == CHIEF_TASK else 0)
        self._on_progress(task, progress)

    def allow(self, failure: ClusterFailure) -> bool:
        """Returns True if there is another attempt, after waiting until it may start.

        The first attempt starts at once, and so does each after a save of a later
        state. Others wait 1, 2, 4 ... seconds, `MAX_SECONDS` at most.
        """
        has_progressed = self._step > self._step_at_restart
        is_in_vain = _is_repeated(failure, self._last_failure) and not has_progressed
        if is_in_vain or not self._budget.spend():
            return False
        self._step_at_restart, self._last_failure = self._step, failure
        restart = f"restart {self._budget.used} of {self._budget.max_restarts}"
        message = f"{failure.message.splitlines()[0]}; {restart}"
        logging.warning("%s", message)
        self._on_progress(CHIEF_TASK, Progress("start", message=message))
        if self._budget.used > 1:
            time.sleep(min(MAX_SECONDS, 2.0 ** (self._budget.used - 2)))
        return True

    def describe(self, failure: ClusterFailure) -> str:
        """Describes the last failure, and why there is no other attempt."""
        if _is_repeated(failure, self._last_failure):
            if failure.out_of_memory:
                return f"{failure.message}\nIt ran out of memory at the same training step again; write a smaller batch"
            return f"{failure.message}\nIt made no progress at the same training step again"
        if not self._budget.max_restarts:
            return failure.message
        return f"{failure.message}\nAll {self._budget.max_restarts} restarts (max_restarts) are used up"


def _is_repeated(failure: ClusterFailure, last: ClusterFailure | None) -> bool:
    """Returns True for a second failure of a kind that is retried only once."""
    return last is not None and ((failure.out_of_memory and last.out_of_memory) or (failure.stuck and last.stuck))

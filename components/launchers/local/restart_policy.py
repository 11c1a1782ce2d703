"""How often, and how soon, a cluster that lost a process is started again."""

import time

from absl import logging

from tfx_distribute.components.launchers.local.processes import ClusterFailure, ProgressListener
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.lifecycle.progress import Progress

MAX_SECONDS = 30.0  # between two tries


class RestartPolicy:
    """The budget of one training.

    Args:
      most: Restarts in all.
      on_progress: Told of each restart, as of each report of a training process.
    """

    def __init__(self, most: int, on_progress: ProgressListener):
        self._most = most
        self._on_progress = on_progress
        self._done = 0
        self._in_vain = 0  # restarts since training got further than before
        self._step = self._furthest = 0
        self._before: ClusterFailure | None = None

    def listen(self, task: ClusterTask, progress: Progress) -> None:
        """Takes in a report, and passes it on."""
        self._step = max(self._step, progress.step if task == CHIEF_TASK else 0)
        self._on_progress(task, progress)

    def allow(self, failure: ClusterFailure) -> bool:
        """Whether there is another try; waits until it is time for it.

        The first comes at once, and so does each that follows after some progress. Those in vain wait 1, 2, 4 ... seconds.
        """
        further = self._step > self._furthest
        if self._done >= self._most or (_again(failure, self._before) and not further):
            return False
        self._in_vain = 0 if further else self._in_vain + 1
        self._furthest, self._before = self._step, failure
        self._done += 1
        message = f"{failure.message.splitlines()[0]}; restart {self._done} of {self._most}"
        logging.warning("%s", message)
        self._on_progress(CHIEF_TASK, Progress("start", message=message))
        if self._in_vain > 1:
            time.sleep(min(MAX_SECONDS, 2.0 ** (self._in_vain - 2)))
        return True

    def describe(self, failure: ClusterFailure) -> str:
        """The last failure, with what was tried against it."""
        if _again(failure, self._before):
            if failure.out_of_memory:
                return f"{failure.message}\nIt ran out of memory at the same training step again; write a smaller batch"
            return f"{failure.message}\nIt made no progress at the same training step again"
        if not self._most:
            return failure.message
        return f"{failure.message}\nAll {self._most} restarts (max_restarts) are used up"


def _again(failure: ClusterFailure, before: ClusterFailure | None) -> bool:
    """Returns True for a failure that gets one more try only, and has had it."""
    return before is not None and ((failure.out_of_memory and before.out_of_memory) or (failure.stuck and before.stuck))

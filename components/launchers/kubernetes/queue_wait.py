"""Says what a suspended job waits for in a queue of Kueue, and ends a vain wait."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfx_distribute.components.launchers.kubernetes import queues, refusals
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.kubernetes.settings import QUEUE_LABEL
from tfx_distribute.trainer_module.errors import TrainingError

WORKLOADS_SECONDS = 5.0  # between two looks at what the job waits for
_NO_WORKLOAD = queues.Wait(
    "Kueue has made no Workload for it",
    "see whether the WorkloadPriorityClass in its labels exists, and whether the pods of Kueue run, usually in namespace "
    "kueue-system",
)


class QueueWait:
    """The wait of a suspended job.

    Args:
      jobs: Client of the job.
      say_once: Logs words that were not logged before.
    """

    def __init__(self, jobs: JobClient, say_once: Callable[[str], None]):
        self._jobs, self._say_once = jobs, say_once
        self.end()

    def end(self) -> None:
        """Notes that the job does not wait, or no longer."""
        self._read_at = -math.inf
        self._hopeless_since = 0.0  # 0 if the wait may end by itself

    def observe(self, job: Mapping[str, Any]) -> None:
        """Logs what the suspended job waits for.

        Raises:
          TrainingError: Only a person can end the wait.
        """
        now = time.monotonic()
        if now - self._read_at < WORKLOADS_SECONDS:
            return
        self._read_at = now
        queue = job["metadata"].get("labels", {}).get(QUEUE_LABEL)
        if not queue:
            self._say_once(
                f"{self._jobs} is suspended and in no queue; if Kueue manages all jobs of this cluster, write "
                "targets.kubeflow.queue, else have it resumed"
            )
            return
        workloads = self._jobs.list_workloads(job["metadata"]["uid"])
        if workloads is None:
            return
        wait = queues.find_wait(workloads)
        if not workloads:
            wait = _NO_WORKLOAD
        words = f"{self._jobs} waits in queue {queue}: {wait.words}"
        if not wait.remedy:
            self._hopeless_since = 0.0
            if wait.words:
                self._say_once(words)
            return
        self._hopeless_since = self._hopeless_since or now
        words = f"{words}; {wait.remedy}"
        if workloads:
            self._say_once(words)
        if now - self._hopeless_since > refusals.FINAL_SECONDS:
            raise TrainingError(words)

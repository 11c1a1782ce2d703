"""Says what a suspended job waits for in a queue of Kueue."""

import time
from collections.abc import Callable

from tfx_distribute.components.launchers.kubernetes import queues, refusals
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.trainer_module.errors import TrainingError

WORKLOADS_SECONDS = 5.0  # between two looks at what the job waits for


class QueueWait:
    """A job's wait in a queue.

    Args:
      jobs: Client of the job.
      queue: Name of the queue.
      say_once: Logs words that were not logged before.
    """

    def __init__(self, jobs: JobClient, queue: str, say_once: Callable[[str], None]):
        self._jobs, self._queue, self._say_once = jobs, queue, say_once
        self._read_at = -WORKLOADS_SECONDS
        self._too_large_since = 0.0  # 0 if the job may fit

    def observe(self, uid: str) -> None:
        """Logs what the suspended job waits for.

        Args:
          uid: Uid of the job.

        Raises:
          TrainingError: The queue never has as much as the job asks for.
        """
        now = time.monotonic()
        if now - self._read_at < WORKLOADS_SECONDS:
            return
        self._read_at = now
        wait = queues.find_wait(self._jobs.list_workloads(uid))
        if not wait:
            return
        words = f"{self._jobs} waits in queue {self._queue}: {wait}"
        if not queues.is_too_large(wait):
            self._too_large_since = 0.0
            self._say_once(words)
            return
        words += "; ask for smaller or fewer machines in resources, or have the quota of the ClusterQueue raised"
        self._say_once(words)
        self._too_large_since = self._too_large_since or now
        if now - self._too_large_since > refusals.FINAL_SECONDS:
            raise TrainingError(words)

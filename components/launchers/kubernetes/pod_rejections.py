"""Watches for pods that machines reject, and gives up a training if that continues.

The kubelet rejects a pod that was assigned to its machine, for instance with
UnexpectedAdmissionError while the device plugin of its GPUs starts. The pod fails
before it has a container, and controllers make another one at once.
"""

import time
from collections.abc import Callable

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pod_starts, pods, refusals
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.kubernetes.pod_history import PodHistory
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import ClusterTask


class PodRejections:
    """Says that machines reject pods of a job, and finds tasks for which that lasts.

    Args:
      jobs: Client of the job.
      history: Its pods.
      say_once: Logs words that were not logged before.

    Attributes:
      rejected: Uids of pods that have failed before they had a container.
    """

    def __init__(self, jobs: JobClient, history: PodHistory, say_once: Callable[[str], None]):
        self.rejected: set[str] = set()
        self._jobs, self._history, self._say_once = jobs, history, say_once
        self._since: dict[ClusterTask, float] = {}  # task -> since when it is needed and its pods are rejected

    def observe(self, pod: client.V1Pod, replaced: client.V1Pod | None, is_needed: bool) -> None:
        """Notes if a pod, or the one whose place it takes, was rejected.

        Args:
          pod: The pod.
          replaced: See `PodHistory.observe`.
          is_needed: False if the training goes on without it.

        Raises:
          TrainingError: Pods of its task were needed, and rejected, for
            `START_SECONDS`, and none was admitted or had to wait for a machine
            meanwhile.
        """
        task, uid, admitted = self._jobs.kind.task_of(pod), pod.metadata.uid, self._history.admitted
        if uid in admitted or pods.waits_for_machine(pod):
            self._since.pop(task, None)
        elif pod.status.phase == "Failed":
            self.rejected.add(uid)
            how = pods.PodEnd.of(pod).how or "failed before it had a container"
            self._note(task, f"pod {pod.metadata.name} {how}", is_needed)
        elif replaced and replaced.metadata.uid not in (*admitted, *self.rejected):
            # It is gone already, but its events stay.
            rejection = refusals.find_rejection(self._jobs.list_events_of_pod(replaced.metadata.uid))
            if rejection:
                self._note(task, f"pod {replaced.metadata.name} failed ({rejection})", is_needed)

    def _note(self, task: ClusterTask, words: str, is_needed: bool) -> None:
        self._say_once(f"{words}; this uses up no restart")
        if not is_needed:
            self._since.pop(task, None)
            return
        now = time.monotonic()
        if now - self._since.setdefault(task, now) > pod_starts.START_SECONDS:
            raise TrainingError(
                f"{self._jobs}: {words}; machines have rejected all pods of {task} for {pod_starts.START_SECONDS:g} s. See "
                "with `kubectl describe node` whether the machine and its device plugins are healthy"
            )

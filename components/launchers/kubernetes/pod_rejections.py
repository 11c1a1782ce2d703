"""Watches for pods that machines reject, and gives up a training if that does not end.

The kubelet rejects a pod that was assigned to its machine, for instance with
UnexpectedAdmissionError while the device plugin of its GPUs starts. The pod fails
before it has a container, and controllers make another one at once.
"""

import time
from collections.abc import Callable

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pod_starts, pods, refusals
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import ClusterTask


class PodRejections:
    """Says that machines reject pods of a job, and finds tasks for which that lasts.

    Args:
      jobs: Client of the job.
      say_once: Logs words that were not logged before.

    Attributes:
      rejected: Uids of pods that have failed before they had a container.
    """

    def __init__(self, jobs: JobClient, say_once: Callable[[str], None]):
        self.rejected: set[str] = set()
        self._jobs, self._say_once = jobs, say_once
        self._latest: dict[ClusterTask, client.V1Pod] = {}
        self._admitted: set[str] = set()  # uids of pods that a machine has admitted
        self._since: dict[ClusterTask, float] = {}  # task -> since when its pods are rejected

    def observe(self, pod: client.V1Pod) -> None:
        """Notes if a pod, or the one whose place it takes, was rejected.

        Raises:
          TrainingError: Pods of its task have been rejected for `START_SECONDS`, and
            none was admitted or had to wait for a machine meanwhile.
        """
        task, uid = self._jobs.kind.task_of(pod), pod.metadata.uid
        earlier = self._latest.get(task, pod)
        self._latest[task] = pod
        if pods.was_admitted(pod):
            self._admitted.add(uid)
        if uid in self._admitted or pods.waits_for_machine(pod):
            self._since.pop(task, None)
        elif pod.status.phase == "Failed":
            self.rejected.add(uid)
            self._note(task, f"pod {pod.metadata.name} {pods.PodEnd.of(pod).how or 'failed before it had a container'}")
        elif earlier.metadata.uid not in (uid, *self._admitted, *self.rejected):
            # It is gone already, but its events stay.
            rejection = refusals.find_rejection(self._jobs.list_events_of_pod(earlier.metadata.uid))
            if rejection:
                self._note(task, f"pod {earlier.metadata.name} failed ({rejection})")

    def forget_pods(self) -> None:
        """Forgets the present pods, which are removed for another reason."""
        self._latest.clear()

    def _note(self, task: ClusterTask, words: str) -> None:
        self._say_once(f"{words}; this uses up no restart")
        now = time.monotonic()
        if now - self._since.setdefault(task, now) > pod_starts.START_SECONDS:
            raise TrainingError(
                f"{self._jobs}: {words}; machines have rejected all pods of {task} for {pod_starts.START_SECONDS:g} s. See "
                "with `kubectl describe node` whether the machine and its device plugins are healthy"
            )

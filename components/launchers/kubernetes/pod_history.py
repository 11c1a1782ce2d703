"""Remembers the pods of a job, and which of them took the place of others."""

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pods
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.trainer_module.job.cluster import ClusterTask


class PodHistory:
    """Remembers the pods of a job.

    Args:
      jobs: Client of the job.

    Attributes:
      admitted: Uids of pods that a machine has admitted.
      started: Uids of pods in which training has started.
      started_tasks: Their tasks.
    """

    def __init__(self, jobs: JobClient):
        self.admitted: set[str] = set()
        self.started: set[str] = set()
        self.started_tasks: set[ClusterTask] = set()
        self._jobs = jobs
        self._seen: set[str] = set()  # uids of pods
        self._latest: dict[ClusterTask, client.V1Pod] = {}

    def observe(self, pod: client.V1Pod) -> client.V1Pod | None:
        """Notes a pod.

        Returns:
          The pod whose place it takes, when it is seen for the first time; else None.
        """
        uid, task = pod.metadata.uid, self._jobs.kind.task_of(pod)
        if pods.was_admitted(pod):
            self.admitted.add(uid)
        if pods.has_started(pod):
            self.started.add(uid)
            self.started_tasks.add(task)
        if uid in self._seen:
            return None
        self._seen.add(uid)
        replaced = self._latest.get(task)
        self._latest[task] = pod
        return replaced

    def forget_latest(self) -> None:
        """Forgets the present pods: the controller removes them for a suspension."""
        self._latest.clear()

"""Remembers the pods of a job, and which of them took the place of others."""

from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pods as pods_lib
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, EVALUATOR, ClusterTask


class PodHistory:
    """Remembers the pods of a job.

    Args:
      jobs: Client of the job.

    Attributes:
      admitted: Uids of pods that a machine has admitted.
      started: Uids of pods in which training has started.
    """

    def __init__(self, jobs: JobClient):
        self.admitted: set[str] = set()
        self.started: set[str] = set()
        self._jobs = jobs
        self._begun: set[ClusterTask] = set()  # tasks that have run while the current chief ran
        self._seen: set[str] = set()  # uids of pods
        self._latest: dict[ClusterTask, client.V1Pod] = {}

    def observe(self, pod: client.V1Pod) -> client.V1Pod | None:
        """Notes a pod.

        Returns:
          The pod whose place it takes, when it is seen for the first time; else None.
        """
        uid, task = pod.metadata.uid, self._jobs.kind.task_of(pod)
        if pods_lib.was_admitted(pod):
            self.admitted.add(uid)
        if pods_lib.has_started(pod):
            self.started.add(uid)
        is_new = uid not in self._seen
        if is_new and task == CHIEF_TASK:
            self._begun.clear()
        # Until this chief runs, others may belong to the one before, and end soon.
        if pods_lib.is_running(pod) and (task == CHIEF_TASK or CHIEF_TASK in self._begun):
            self._begun.add(task)
        if not is_new:
            return None
        self._seen.add(uid)
        replaced = self._latest.get(task)
        self._latest[task] = pod
        return replaced

    def list_needed(self, job: Mapping[str, Any], pods: Sequence[client.V1Pod]) -> frozenset[ClusterTask]:
        """Returns the tasks without which the training cannot go on now.

        It goes on without evaluators and, with parameter servers, without workers. But
        a chief begins only when all workers have begun.

        Args:
          job: The job.
          pods: Its pods.
        """
        kind = self._jobs.kind
        chiefs = [pod for pod in pods if kind.task_of(pod) == CHIEF_TASK]
        if any(map(pods_lib.has_trained, chiefs)):
            return frozenset()
        begun = self._begun if any(pod.status.phase == "Running" for pod in chiefs) else set()
        replaceable = {task for task in kind.list_replaceable(job) if task.role == EVALUATOR or task in begun}
        return kind.list_tasks(job) - replaceable

    def forget_latest(self) -> None:
        """Forgets the present pods: the controller removes them for a suspension."""
        self._latest.clear()
        self._begun.clear()

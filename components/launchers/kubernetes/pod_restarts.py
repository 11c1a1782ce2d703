"""Counts the restarts of a training whose controller makes new pods by itself."""

from collections import Counter

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pods, refusals
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.restart_budget import RestartBudget
from tfx_distribute.trainer_module.job.cluster import ClusterTask


class PodRestarts:
    """Counts a restart when a pod takes the place of one whose container was started.

    Other pods were rejected by a machine, or removed while they waited for one or for
    their image.

    Args:
      jobs: Client of the job.
      budget: Counts the restarts of the whole training.

    Attributes:
      exceeded: True if the training was restarted more often than it may be.
    """

    def __init__(self, jobs: JobClient, budget: RestartBudget):
        self.exceeded = False
        self._jobs, self._budget = jobs, budget
        self._latest: dict[ClusterTask, str] = {}  # task -> uid of its latest pod
        self._seen: set[str] = set()  # uids of pods
        self._admitted: set[str] = set()  # uids of those that a machine has admitted
        self._started: set[str] = set()  # uids of those in which training has started
        self._replaced: Counter[ClusterTask] = Counter()
        self._restarts = 0  # of the cluster

    def observe(self, pod: client.V1Pod) -> None:
        """Notes a pod, and counts a restart if it takes the place of another."""
        task, uid = self._jobs.kind.task_of(pod), pod.metadata.uid
        if pods.was_admitted(pod):
            self._admitted.add(uid)
        if pods.has_started(pod):
            self._started.add(uid)
        if uid in self._seen:
            return
        self._seen.add(uid)
        if task in self._latest and self._was_started(self._latest[task]):
            self._replaced[task] += 1
        self._latest[task] = uid
        # Each of the processes that lost a peer has a new pod then, so the counts of
        # tasks do not add up.
        if self._replaced[task] > self._restarts:
            self._restarts = self._replaced[task]
            self.exceeded = not self._budget.spend() or self.exceeded

    def _was_started(self, uid: str) -> bool:
        """Returns True if the container of a pod that is gone was started."""
        if uid in self._started:
            return True
        # One that ends at once, or whose program is not in the image, may be gone
        # before anybody sees that.
        events = self._jobs.list_events_of_pod(uid)
        return refusals.was_started(events) if events else uid in self._admitted

    def forget_pods(self) -> None:
        """Forgets the present pods, which the controller removes for a suspension."""
        self._latest.clear()

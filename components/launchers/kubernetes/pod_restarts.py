"""Counts the restarts of a training whose controller makes new pods by itself."""

from collections import Counter

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import refusals
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.kubernetes.pod_history import PodHistory
from tfx_distribute.components.launchers.restart_budget import RestartBudget
from tfx_distribute.trainer_module.job.cluster import ClusterTask


class PodRestarts:
    """Counts a restart when a pod takes the place of one whose container was started.

    Other pods were rejected by a machine, or removed while they waited for one or for
    their image.

    Args:
      jobs: Client of the job.
      history: Its pods.
      budget: Counts the restarts of the whole training.

    Attributes:
      exceeded: True if the training was restarted more often than it may be.
    """

    def __init__(self, jobs: JobClient, history: PodHistory, budget: RestartBudget):
        self.exceeded = False
        self._jobs, self._history, self._budget = jobs, history, budget
        self._replaced: Counter[ClusterTask] = Counter()
        self._restarts = 0  # of the cluster

    def observe(self, replaced: client.V1Pod | None) -> None:
        """Counts a restart if a pod was started that another one replaces now.

        Args:
          replaced: See `PodHistory.observe`.
        """
        if replaced is None or not self._was_started(replaced.metadata.uid):
            return
        task = self._jobs.kind.task_of(replaced)
        self._replaced[task] += 1
        # Each of the processes that lost a peer has a new pod then, so the counts of
        # tasks do not add up.
        if self._replaced[task] > self._restarts:
            self._restarts = self._replaced[task]
            self.exceeded = not self._budget.spend() or self.exceeded

    def _was_started(self, uid: str) -> bool:
        """Returns True if the container of a pod that is gone was started."""
        if uid in self._history.started:
            return True
        # One that ends at once, or whose program is not in the image, may be gone
        # before anybody sees that.
        events = self._jobs.list_events_of_pod(uid)
        return refusals.was_started(events) if events else uid in self._history.admitted

"""Finds out why a job has no pods, and gives it up if they stay refused."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubernetes import client

from tfx_distribute.components.launchers.errors import NoRoomError
from tfx_distribute.components.launchers.kubernetes import refusals, remedies
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.kubernetes.job_kind import LONG_AGO, JobState
from tfx_distribute.components.launchers.kubernetes.pod_history import PodHistory
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask

CONTROLLER_SECONDS = 45.0  # for the controller to make a pod, or to say why it cannot
NAMED_TASKS = 5  # of those without a pod


class MissingPods:
    """The pods that a job should have and does not have.

    Args:
      jobs: Client of the job.
      history: Its pods.
      quota_timeout_seconds: Seconds to wait while a quota refuses pods.
      say_once: Logs words that were not logged before.
    """

    def __init__(self, jobs: JobClient, history: PodHistory, quota_timeout_seconds: float, say_once: Callable[[str], None]):
        self._jobs, self._history, self._say_once = jobs, history, say_once
        self._quota_timeout_seconds = quota_timeout_seconds
        self._needed: frozenset[ClusterTask] = frozenset()  # tasks without a pod that the training needs
        self._needed_since = 0.0
        self._last_made = LONG_AGO  # when the last pod was created
        self._refused_since = 0.0  # 0 if no needed pod is known to be refused

    def observe(self, job: Mapping[str, Any], state: JobState, pods: Sequence[client.V1Pod]) -> bool:
        """Logs why pods or their names do not exist, and gives up if they are refused.

        Returns:
          True if the chief has succeeded although pods are refused. As long as one is,
          the Training Operator does not look at the others.

        Raises:
          TrainingError: Pods that the training needs have been refused for too long, or
            the controller does not create them and does not say why.
        """
        kind = self._jobs.kind
        self._last_made = max([self._last_made, *(pod.metadata.creation_timestamp for pod in pods)])
        phases = {kind.task_of(pod): str(pod.status.phase) for pod in pods}
        missing = frozenset() if state.is_suspended else kind.list_tasks(job) - set(phases)
        needed = missing & self._history.list_needed(job, pods)
        now = time.monotonic()
        if needed != self._needed:
            self._needed, self._needed_since, self._refused_since = needed, now, 0.0
        if state.is_suspended or (not missing and state.start.time):
            return False
        events = self._jobs.list_events(job)
        refusal = refusals.find_refusal(kind.refusal_reasons, state.changed_at, pods, events or ())
        if refusal:
            words = f"{self._jobs}: the cluster refuses its pods: {remedies.with_remedy(refusal)}"
            self._say_once(words)
            if phases.get(CHIEF_TASK) == "Succeeded":
                return True
            if missing and not needed:
                return False
            self._refused_since = self._refused_since or now
            if now - self._refused_since > refusals.patience(refusal, self._quota_timeout_seconds):
                raise NoRoomError(words) if refusals.may_fit(refusal) else TrainingError(words)
            return False
        if not needed or now - self._needed_since <= CONTROLLER_SECONDS:
            return False
        is_unseen = not (pods or state.was_seen)
        which = "no pods" if is_unseen else f"no pod of {', '.join(map(str, sorted(needed)[:NAMED_TASKS]))}"
        words = f"{self._jobs} has {which} after {CONTROLLER_SECONDS:g} s"
        if self._last_made < state.postponed_at >= state.changed_at:
            self._say_once(f"{words}: {kind.controller} waits for a gang scheduler; see `kubectl describe podgroup`")
            return False
        words += (
            f", and no event says why; {kind.see_controller()}, and what they log: a quota or a policy may refuse what they "
            "make"
        )
        self._say_once(words)
        # Without events, we may not read why pods are refused.
        if events is not None and (is_unseen or now - self._needed_since > refusals.OTHER_SECONDS):
            raise TrainingError(words)
        return False

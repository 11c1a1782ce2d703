"""Watches the pods of a training until they run, and gives up those that cannot."""

import time
from collections.abc import Callable, Collection
from datetime import datetime, timezone

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pods, refusals, remedies
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.trainer_module.errors import TrainingError

EVENTS_SECONDS = 5.0  # between two looks at the events of a pod that starts
# How long a pod may fail to start: an image or a secret that is missing may still come.
START_SECONDS = 300.0


class PodStarts:
    """Says why pods of a job do not start, and finds those that never will.

    Args:
      jobs: Client of the job.
      owners: Names of the pods that own the job, which end after it.
      say_once: Logs words that were not logged before.
    """

    def __init__(self, jobs: JobClient, owners: Collection[str], say_once: Callable[[str], None]):
        self._jobs, self._owners, self._say_once = jobs, owners, say_once
        self._events_read: dict[str, float] = {}  # pod's uid -> when its events were last read
        self._obstacles: dict[str, str] = {}  # pod's uid -> why it is not ready
        self._stuck: dict[str, float] = {}  # uid -> since when the pod is needed and cannot start

    def observe(self, pod: client.V1Pod, is_needed: bool) -> None:
        """Logs what a pod waits for, and gives up one that cannot start.

        Args:
          pod: The pod.
          is_needed: False if the training goes on without it.

        Raises:
          TrainingError: The pod was needed, and could not start, for `START_SECONDS`.
        """
        uid, name = pod.metadata.uid, pod.metadata.name
        obstacle = self._find_obstacle(pod)
        words = f"cannot start ({obstacle})" if obstacle else ""
        will_not_pass = refusals.will_not_pass(obstacle) or self._is_held_by_own_pod(obstacle)
        problem = pods.cannot_start(pod) or (words if will_not_pass else "")
        if not problem:
            self._stuck.pop(uid, None)
            waits = pods.waits_for_machine(pod) or words or pods.describe_initial(pod, datetime.now(timezone.utc))
            if waits:
                self._say_once(remedies.with_remedy(f"pod {name} {waits}"))
            return
        words = remedies.with_remedy(f"pod {name} {problem}")
        self._say_once(words)
        if not is_needed:
            self._stuck.pop(uid, None)
            return
        now = time.monotonic()
        if now - self._stuck.setdefault(uid, now) > START_SECONDS:
            raise TrainingError(f"{self._jobs}: {words}")

    def _is_held_by_own_pod(self, obstacle: str) -> bool:
        """Returns True if a pod waits for a volume that its own training holds."""
        users = refusals.find_volume_users(obstacle)
        return any(user in self._owners or user.startswith(f"{self._jobs.name}-") for user in users)

    def _find_obstacle(self, pod: client.V1Pod) -> str:
        """Returns why a machine cannot prepare a pod yet, which only events say."""
        uid, now = pod.metadata.uid, time.monotonic()
        if not pods.is_being_made(pod):
            return ""
        if now - self._events_read.get(uid, -EVENTS_SECONDS) >= EVENTS_SECONDS:
            self._events_read[uid] = now
            self._obstacles[uid] = refusals.find_obstacle(self._jobs.list_events_of_pod(uid))
        return self._obstacles[uid]

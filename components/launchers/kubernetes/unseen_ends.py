"""Ends a job whose pods have ended, and whose controller does not see that.

A pod that a sidecar keeps running never ends for the controller, and one whose sidecar
fails has failed. A controller that does not run sees nothing at all.
"""

import time
from collections.abc import Callable, Sequence

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pods as pods_lib
from tfx_distribute.components.launchers.kubernetes import refusals, remedies
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.kubernetes.job_kind import JobState
from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK

UNSEEN_SECONDS = 60.0  # for the controller to see that the training in a pod has ended


class UnseenEnds:
    """The pods of a job in which the training has ended, while the job goes on.

    Args:
      jobs: Client of the job.
      say_once: Logs words that were not logged before.
    """

    def __init__(self, jobs: JobClient, say_once: Callable[[str], None]):
        self._jobs, self._say_once = jobs, say_once
        self._since: dict[str, float] = {}  # pod's uid -> when its end was first seen

    def observe(self, state: JobState, pods: Sequence[client.V1Pod], is_complete: bool) -> bool:
        """Looks for pods that have ended.

        Args:
          state: State of the job, which has not ended.
          pods: Its pods.
          is_complete: True if each task has a pod. Before that, the controller may be
            kept from looking at pods that have ended.

        Returns:
          True if the chief has succeeded.

        Raises:
          TrainingError: A process has failed, and a sidecar keeps its pod running; or
            the controller does not react to a chief that has failed.
        """
        now = time.monotonic()
        unseen: list[tuple[client.V1Pod, float]] = []
        for pod in pods:
            if pods_lib.has_ended(pod) and pod.metadata.deletion_timestamp is None:
                seconds = now - self._since.setdefault(pod.metadata.uid, now)
                unseen += [(pod, seconds)] if seconds > UNSEEN_SECONDS else []
        held = [each for pod, _ in unseen if (each := pods_lib.find_held(pod))]
        if any(map(pods_lib.has_trained, self._chiefs(pods))):
            for each in held:
                self._say_once(str(each))
            # A pod whose sidecar has failed makes the whole job fail.
            chiefs = self._chiefs([pod for pod, _ in unseen])
            return bool(held or chiefs) or any(pod.status.phase == "Failed" for pod in self._chiefs(pods))
        for each in held:
            if each.exit_code:
                raise self._error(each.name, str(each))
        if not is_complete or state.is_suspended:
            return False
        for pod in self._chiefs([pod for pod, seconds in unseen if seconds > refusals.OTHER_SECONDS]):
            end, kind = pods_lib.PodEnd.of(pod), self._jobs.kind
            words = (
                f"{self._jobs}: pod {end.name} {end.how or 'has failed'}, and {kind.controller} has not reacted for "
                f"{refusals.OTHER_SECONDS:g} s; {kind.see_controller()}"
            )
            raise self._error(end.name, remedies.with_remedy(words), end.container)
        return False

    def _chiefs(self, pods: Sequence[client.V1Pod]) -> list[client.V1Pod]:
        return [pod for pod in pods if self._jobs.kind.task_of(pod) == CHIEF_TASK]

    def _error(self, pod: str, words: str, container: str = CONTAINER) -> TrainingError:
        """Returns an error that has the last lines of a pod's container."""
        return TrainingError("\n".join([words, *(f"  {line}" for line in self._jobs.last_lines(pod, container))]))

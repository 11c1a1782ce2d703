"""Interprets what Kubernetes reports about the pods of a training.

Pure functions, without requests to Kubernetes.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER
from tfx_distribute.trainer_module.liveness import exit_codes

if TYPE_CHECKING:
    from kubernetes import client

LAST_LINES = 20  # of a pod's log
_NOT_STARTED = ("StartError", "ContainerCannotRun")


@dataclass(frozen=True)
class PodEnd:
    """Failure of a pod, if it has failed.

    Attributes:
      how: How it failed; empty if it has not failed.
      at: When it failed, in seconds since 1970; 0 if that is unknown.
      is_final: True if another attempt would fail too.
    """

    name: str
    how: str = ""
    at: float = float("inf")
    is_final: bool = False
    last_lines: tuple[str, ...] = ()

    @staticmethod
    def of(pod: "client.V1Pod") -> "PodEnd":
        """Reads a pod's status."""
        name = pod.metadata.name
        if pod.status.reason:  # such as Evicted
            return PodEnd(name, f"failed ({pod.status.reason}: {pod.status.message or ''})", 0.0)
        state = _training_state(pod)
        end = state and state.terminated
        if not end or not end.exit_code:
            return PodEnd(name)
        at = end.finished_at.timestamp() if end.finished_at else 0.0
        # The container's own words are in its log. If it could not even be started,
        # there are others.
        words = f": {end.message}" if end.message and end.reason in _NOT_STARTED else ""
        how = f"ended with exit code {end.exit_code} ({end.reason or 'Error'}{words})"
        return PodEnd(name, how, at, exit_codes.is_final(end.exit_code) and not _was_removed(pod, end))


def has_started(pod: "client.V1Pod") -> bool:
    """Returns True if the training in a pod has started; it may have ended since."""
    state = _training_state(pod)
    return pod.status.phase in ("Running", "Succeeded") or bool(state and (state.running or state.terminated))


def has_trained(pod: "client.V1Pod") -> bool:
    """Returns True if the training in a pod has succeeded.

    The pod itself fails if another of its containers does, and runs until all have
    ended.
    """
    state = _training_state(pod)
    end = state and state.terminated
    return pod.status.phase == "Succeeded" or (end is not None and end.exit_code == 0)


def _training_state(pod: "client.V1Pod") -> "client.V1ContainerState | None":
    """Returns the state of the container that trains; None if it has none yet."""
    return next((each.state for each in pod.status.container_statuses or () if each.name == CONTAINER), None)


def _was_removed(pod: "client.V1Pod", end: "client.V1ContainerStateTerminated") -> bool:
    """Returns True if a pod's process ended because the pod was being deleted."""
    if pod.metadata.deletion_timestamp is None or end.finished_at is None:
        return False
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return bool(end.finished_at >= pod.metadata.deletion_timestamp - grace)

"""Interprets what Kubernetes reports about the pods of a training.

Pure functions, without requests to Kubernetes.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubernetes import client

from tfx_distribute.trainer_module.lifecycle import exit_codes

REMOVAL_SECONDS = 60.0  # after which a pod that is being deleted should be gone

_STARTING = ("ContainerCreating", "PodInitializing")
_NOT_STARTED = ("StartError", "ContainerCannotRun")
_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "[^"]*" not found')


@dataclass(frozen=True)
class PodEnd:
    """Failure of a pod, if it has failed.

    Attributes:
      name: Name of the pod.
      how: How it failed; empty if it has not failed.
      at: When it failed, in seconds since 1970; 0 if that is unknown.
      is_final: True if another attempt would fail too.
      last_lines: Last lines that it printed.
    """

    name: str
    how: str = ""
    at: float = float("inf")
    is_final: bool = False
    last_lines: tuple[str, ...] = ()

    @staticmethod
    def of(pod: client.V1Pod) -> "PodEnd":
        """Reads a pod's status."""
        name = pod.metadata.name
        if pod.status.reason:  # such as Evicted
            return PodEnd(name, f"failed ({pod.status.reason}: {pod.status.message or ''})", 0.0)
        for status in pod.status.container_statuses or ():
            end = (status.state and status.state.terminated) or (status.last_state and status.last_state.terminated)
            if end and end.exit_code:
                at = end.finished_at.timestamp() if end.finished_at else 0.0
                # The container's own words are in its log. If it could not even be
                # started, there are others.
                words = f": {end.message}" if end.message and end.reason in _NOT_STARTED else ""
                how = f"ended with exit code {end.exit_code} ({end.reason or 'Error'}{words})"
                return PodEnd(name, how, at, exit_codes.is_final(end.exit_code) and not _was_removed(pod, end))
        return PodEnd(name)


def _was_removed(pod: client.V1Pod, end: client.V1ContainerStateTerminated) -> bool:
    """Returns True if a pod's process ended because the pod was being deleted."""
    if pod.metadata.deletion_timestamp is None or end.finished_at is None:
        return False
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return bool(end.finished_at >= pod.metadata.deletion_timestamp - grace)


def describe_removal(pod: client.V1Pod, now: datetime) -> str:
    """Describes a pod that should be gone by now; empty if it is not one.

    Args:
      pod: The pod.
      now: The current time.
    """
    due = pod.metadata.deletion_timestamp
    if due is None or now - due < timedelta(seconds=REMOVAL_SECONDS):
        return ""
    return (
        f"is still being removed from node {pod.spec.node_name}, which may be lost; nothing takes its place until it is gone"
    )


def waits_for_machine(pod: client.V1Pod) -> str:
    """Describes why a pod has no machine yet; empty if it has one."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"waits for a node ({condition.reason or 'Pending'}: {condition.message or ''})"
    return ""


def cannot_start(pod: client.V1Pod) -> str:
    """Describes why a pod cannot start on any machine; empty if nothing prevents it."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and _MISSING_CLAIM.search(condition.message or ""):
            return f"cannot start ({condition.reason or 'Pending'}: {condition.message})"
    for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        waiting = status.state and status.state.waiting
        if waiting and waiting.reason not in (None, *_STARTING):
            return f"cannot start ({waiting.reason}: {waiting.message or ''})"
    return ""


def is_being_made(pod: client.V1Pod) -> bool:
    """Returns True while a machine prepares a pod's volumes and image."""
    states = [status.state and status.state.waiting for status in pod.status.container_statuses or ()]
    return pod.status.phase == "Pending" and any(waiting and waiting.reason in _STARTING for waiting in states)

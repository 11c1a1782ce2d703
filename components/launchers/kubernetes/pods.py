"""Interprets what Kubernetes reports about the pods of a training.

Pure functions, without requests to Kubernetes.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubernetes import client

from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER
from tfx_distribute.trainer_module.lifecycle import exit_codes

REMOVAL_SECONDS = 60.0  # after its grace period, a pod that is being deleted should be gone
INITIAL_SECONDS = 60.0  # after which an init container should have ended

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
      container: Name of the container that has failed.
      last_lines: Last lines that it printed.
    """

    name: str
    how: str = ""
    at: float = float("inf")
    is_final: bool = False
    container: str = CONTAINER
    last_lines: tuple[str, ...] = ()

    @staticmethod
    def of(pod: client.V1Pod) -> "PodEnd":
        """Reads a pod's status."""
        name = pod.metadata.name
        if pod.status.reason:  # such as Evicted
            return PodEnd(name, f"failed ({pod.status.reason}: {pod.status.message or ''})", 0.0)
        initial, others = pod.status.init_container_statuses or [], pod.status.container_statuses or []
        for status in [*sorted(others, key=lambda status: status.name != CONTAINER), *initial]:
            is_training = status.name == CONTAINER
            end = (status.state and status.state.terminated) or (status.last_state and status.last_state.terminated)
            # Another container matters only if it makes the pod fail.
            if end and end.exit_code and (is_training or pod.status.phase == "Failed"):
                at = end.finished_at.timestamp() if end.finished_at else 0.0
                # The container's own words are in its log. If it could not even be
                # started, there are others.
                words = f": {end.message}" if end.message and end.reason in _NOT_STARTED else ""
                kind = "init container" if status in initial else "container"
                which = "" if is_training else f"failed: its {kind} {status.name} "
                how = f"{which}ended with exit code {end.exit_code} ({end.reason or 'Error'}{words})"
                is_final = is_training and exit_codes.is_final(end.exit_code) and not _was_removed(pod, end)
                return PodEnd(name, how, at, is_final, status.name)
        return PodEnd(name)


@dataclass(frozen=True)
class HeldPod:
    """A pod whose training has ended, and whose other containers still run.

    Attributes:
      name: Name of the pod.
      exit_code: Exit code of the training's container.
      containers: Names of the containers that still run.
    """

    name: str
    exit_code: int
    containers: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"the training in pod {self.name} has ended with exit code {self.exit_code}, but its container "
            f"{', '.join(self.containers)} still runs; exclude these pods from its injection with a label or an annotation "
            "(targets.kubeflow.labels, annotations)"
        )


def has_started(pod: client.V1Pod) -> bool:
    """Returns True if the training in a pod has started; it may have ended since."""
    if pod.status.phase in ("Running", "Succeeded"):
        return True
    for status in pod.status.container_statuses or ():
        states = [state for state in (status.state, status.last_state) if state]
        if status.name == CONTAINER and any(state.running or state.terminated for state in states):
            return True
    return False


def is_running(pod: client.V1Pod) -> bool:
    """Returns True if a pod runs its training and is not being deleted."""
    return pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None and not has_ended(pod)


def was_admitted(pod: client.V1Pod) -> bool:
    """Returns True if a machine has begun to prepare the containers of a pod."""
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    return has_started(pod) or bool(statuses)


def has_trained(pod: client.V1Pod) -> bool:
    """Returns True if the training in a pod has succeeded.

    The pod itself fails if another of its containers does, and runs until all have
    ended.
    """
    end = _training_end(pod)
    return pod.status.phase == "Succeeded" or (end is not None and end.exit_code == 0)


def has_ended(pod: client.V1Pod) -> bool:
    """Returns True if the training in a pod has succeeded or failed."""
    return pod.status.phase in ("Succeeded", "Failed") or _training_end(pod) is not None


def find_held(pod: client.V1Pod) -> HeldPod | None:
    """Returns a pod that still runs although its training has ended.

    Args:
      pod: The pod.

    Returns:
      The pod and its running containers; None if it is not such a pod.
    """
    end = _training_end(pod)
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None or end is None:
        return None
    running = tuple(each.name for each in pod.status.container_statuses if each.state and each.state.running)
    return HeldPod(pod.metadata.name, end.exit_code, running) if running else None


def _training_end(pod: client.V1Pod) -> client.V1ContainerStateTerminated | None:
    """Returns how the training's container has ended; None if it has not."""
    statuses = (each for each in pod.status.container_statuses or () if each.name == CONTAINER and each.state)
    return next((each.state.terminated for each in statuses), None)


def _was_removed(pod: client.V1Pod, end: client.V1ContainerStateTerminated) -> bool:
    """Returns True if a pod's process ended because the pod was being deleted."""
    if pod.metadata.deletion_timestamp is None or end.finished_at is None:
        return False
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return bool(end.finished_at >= pod.metadata.deletion_timestamp - grace)


def describe_removal(pod: client.V1Pod, seconds: float) -> str:
    """Describes a pod that should be gone by now; empty if it is not one.

    Args:
      pod: A pod that is being deleted.
      seconds: Since when it is, by one clock: those of this machine and of the cluster
        may differ.
    """
    if seconds < (pod.metadata.deletion_grace_period_seconds or 0) + REMOVAL_SECONDS:
        return ""
    return (
        f"is still being removed from node {pod.spec.node_name}, which may be lost; nothing takes its place until it is "
        f"gone: if that machine does not come back, `kubectl delete node {pod.spec.node_name}`"
    )


def waits_for_machine(pod: client.V1Pod) -> str:
    """Describes why a pod has no machine yet; empty if it has one."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"waits for a node ({condition.reason or 'Pending'}: {condition.message or ''})"
    return ""


def cannot_start(pod: client.V1Pod) -> str:
    """Describes why a pod cannot start on any machine; empty if nothing prevents it.

    A pod whose training has started is not reported, even if a sidecar keeps failing.
    """
    if has_started(pod):
        return ""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and _MISSING_CLAIM.search(condition.message or ""):
            return f"cannot start ({condition.reason or 'Pending'}: {condition.message})"
    for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        waiting = status.state and status.state.waiting
        if waiting and waiting.reason not in (None, *_STARTING):
            return f"cannot start ({waiting.reason}: {waiting.message or ''})"
    return ""


def find_initial(pod: client.V1Pod) -> client.V1ContainerStatus | None:
    """Returns the init container that a pod waits for; None if it waits for none.

    A cluster may add such containers. Native sidecars, which keep running, are ready.
    """
    for status in pod.status.init_container_statuses or ():
        has_succeeded = status.state and status.state.terminated and status.state.terminated.exit_code == 0
        if not has_succeeded and not status.ready:
            return status
    return None


def describe_initial(pod: client.V1Pod, now: datetime) -> str:
    """Describes the init container that keeps a pod from starting; empty if none does.

    Args:
      pod: The pod.
      now: The current time.
    """
    status = find_initial(pod)
    if status is None or not (status.state and status.state.running):
        return ""
    since = status.state.running.started_at
    if since is None or now - since < timedelta(seconds=INITIAL_SECONDS):
        return ""
    return f"waits for its init container {status.name}, which has been running for over {INITIAL_SECONDS:g} s"


def is_being_made(pod: client.V1Pod) -> bool:
    """Returns True while a machine prepares a pod's volumes and image."""
    states = [status.state and status.state.waiting for status in pod.status.container_statuses or ()]
    return pod.status.phase == "Pending" and any(waiting and waiting.reason in _STARTING for waiting in states)

"""What the cluster says of a TFJob and its pods, understood. Pure."""

from dataclasses import dataclass
from typing import Any

from kubernetes import client

from tfx_distribute.trainer_module.lifecycle import exit_codes


def latest(job: dict[str, Any]) -> dict[str, Any]:
    """The condition that holds and came last; the operator leaves those before it."""
    holding = [found for found in job.get("status", {}).get("conditions") or () if found["status"] == "True"]
    # Both, where the chief was done just when another process failed: there is a model.
    for last in ("Succeeded", "Failed"):
        for found in holding:
            if found["type"] == last:
                return dict(found)
    return dict((holding or [{"type": "Created"}])[-1])


def condition(job: dict[str, Any]) -> str:
    """Its type: Created, Running, Restarting, Suspended, Succeeded or Failed."""
    return str(latest(job)["type"])


def state(job: dict[str, Any]) -> str:
    """The state of a TFJob and of its replicas, in words."""
    replicas = []
    for kind, counts in sorted((job.get("status", {}).get("replicaStatuses") or {}).items()):
        told = [f"{counts[name]} {name}" for name in ("active", "succeeded", "failed") if counts.get(name)]
        if told:
            replicas.append(f"{kind} {', '.join(told)}")
    words = condition(job)
    if words == "Suspended":
        words = "Suspended: it waits to be admitted"
    return "; ".join([words, *replicas])


@dataclass(frozen=True)
class Start:
    """When the operator last started a TFJob.

    Attributes:
      uid: Uid of the TFJob; one that is made anew has another.
      time: When, in the cluster's words; empty while it is suspended or waits to be started.
    """

    uid: str = ""
    time: str = ""

    @staticmethod
    def of(job: dict[str, Any]) -> "Start":
        """Takes in a TFJob's status, which keeps the time of before while the job is suspended."""
        suspended = condition(job) == "Suspended"
        return Start(job["metadata"]["uid"], "" if suspended else job.get("status", {}).get("startTime") or "")


@dataclass(frozen=True)
class Ended:
    """A pod that may have failed.

    Attributes:
      name: Its name.
      how: In which way; empty where it has not.
      at: When, seconds since 1970.
      is_final: Whether another try would fail too.
      last_lines: What it printed last.
    """

    name: str
    how: str = ""
    at: float = float("inf")
    is_final: bool = False
    last_lines: tuple[str, ...] = ()

    @staticmethod
    def of(pod: client.V1Pod) -> "Ended":
        """Takes in a pod's status."""
        name = pod.metadata.name
        if pod.status.reason:  # such as Evicted
            return Ended(name, f"failed ({pod.status.reason}: {pod.status.message or ''})", 0.0)
        for status in pod.status.container_statuses or ():
            ended = (status.state and status.state.terminated) or (status.last_state and status.last_state.terminated)
            if ended and ended.exit_code:
                at = ended.finished_at.timestamp() if ended.finished_at else 0.0
                how = f"ended with exit code {ended.exit_code} ({ended.reason or 'Error'})"
                return Ended(name, how, at, exit_codes.is_final(ended.exit_code))
        return Ended(name)


def waits_for(pod: client.V1Pod) -> str:
    """Why a pod has found no node yet; empty where it has."""
    for found in pod.status.conditions or ():
        if found.type == "PodScheduled" and found.status == "False":
            return f"waits for a node ({found.reason or 'Pending'}: {found.message or ''})"
    return ""


def cannot_start(pod: client.V1Pod) -> str:
    """Why a pod does not start that has found a node; empty where it does, or may yet."""
    for status in pod.status.container_statuses or ():
        waiting = status.state and status.state.waiting
        if waiting and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return f"cannot start ({waiting.reason}: {waiting.message or ''})"
    return ""

"""Finds out why pods of a training do not exist, or do not start, from events.

The status of a job does not say that the cluster refuses its pods: its controller only
writes an event, and tries again. Pure functions.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from kubernetes import client
from kubernetes.utils.quantity import parse_quantity

from tfx_distribute.components.launchers.kubernetes.job_kind import LONG_AGO

FINAL_SECONDS = 45.0  # for a refusal that only a person can end
# For a refusal that may pass: a webhook or the API server does not answer. Controllers
# wait ever longer before they try again; this allows for the Training Operator's try
# after 328 s.
OTHER_SECONDS = 400.0

_PREFIX = re.compile(r"^(\(combined from similar events\): )?(Error creating: )?")
_DENIED = re.compile(r"is forbidden|is invalid|denied the request")
_QUOTA = re.compile(r"exceeded quota: .*requested: (?P<requested>.*), used: .*, limited: (?P<limited>.*)")
_MISSING_OBJECT = re.compile(r"not found|non-existent")
_VOLUME_USERS = re.compile(
    r"^FailedAttachVolume: .* already used by pod\(s\) (.*?)( and \d+ pod\(s\) in different namespaces)?$"
)


def find_refusal(
    reasons: Collection[str], since: datetime, pods: Sequence[client.V1Pod], events: Iterable[client.CoreV1Event]
) -> str:
    """Returns the cluster's words when it last refused a pod; empty if it has not.

    Args:
      reasons: Reasons of the events that say so.
      since: When the job was last started, suspended or resumed. Refusals from before
        do not count.
      pods: The job's pods. Refusals from before the last one was created do not count.
      events: Events about the job.
    """
    since = max([since, *(pod.metadata.creation_timestamp for pod in pods)])
    refusals = [event for event in events if event.reason in reasons and _time(event) >= since]
    return _PREFIX.sub("", max(refusals, key=_time).message) if refusals else ""


def patience(refusal: str, quota_timeout_seconds: float) -> float:
    """Returns for how many seconds it makes sense to wait until a refusal ends.

    Args:
      refusal: The cluster's words.
      quota_timeout_seconds: Seconds to wait for others to free a part of a quota.
    """
    if may_fit(refusal):
        return quota_timeout_seconds
    return FINAL_SECONDS if _DENIED.search(refusal) else OTHER_SECONDS


def may_fit(refusal: str) -> bool:
    """Returns True if a quota refuses a pod only because others use a part of it."""
    quota = _QUOTA.search(refusal)
    return bool(quota and not _is_too_small(quota["requested"], quota["limited"]))


def _is_too_small(requested: str, limited: str) -> bool:
    """Returns True if a request exceeds the whole quota."""
    try:
        amounts, limits = (
            {name: parse_quantity(amount) for name, amount in (part.split("=") for part in parts.split(","))}
            for parts in (requested, limited)
        )
    except ValueError:  # words of another kind of quota
        return False
    return any(name in limits and amount > limits[name] for name, amount in amounts.items())


def find_obstacle(events: Iterable[client.CoreV1Event]) -> str:
    """Returns why a pod that a machine prepares is not ready; empty if it goes well.

    Args:
      events: All events about the pod. After a later event that is not a warning, the
        obstacle is gone.

    Returns:
      Reason and words of the latest event.
    """
    # Of events of the same second, the failure came first.
    latest = max(events, key=lambda event: (_time(event), event.type != "Warning"), default=None)
    return f"{latest.reason}: {latest.message}" if latest and latest.type == "Warning" else ""


def will_not_pass(obstacle: str) -> bool:
    """Returns True if a volume's mount fails because something does not exist.

    Other failures pass: its files change their group, or it is still attached
    elsewhere, unless for a pod of the same training (`find_volume_users`).
    """
    return obstacle.startswith("FailedMount: ") and bool(_MISSING_OBJECT.search(obstacle))


def find_volume_users(obstacle: str) -> list[str]:
    """Returns the names of pods on another machine that hold the volume a pod needs."""
    match = _VOLUME_USERS.search(obstacle)
    return match[1].split(", ") if match else []


def was_started(events: Iterable[client.CoreV1Event]) -> bool:
    """Returns True if a machine has started a container, or has tried to.

    Args:
      events: Events about the container's pod.
    """
    return any(event.reason in ("Started", "Failed") for event in events)


def find_failed_start(events: Iterable[client.CoreV1Event]) -> str:
    """Returns why a container could not be started; empty if it could.

    Args:
      events: Events about the container's pod.
    """
    failures = [event for event in events if event.reason == "Failed"]
    return str(max(failures, key=_time).message) if failures else ""


def find_rejection(events: Iterable[client.CoreV1Event]) -> str:
    """Returns why a machine rejected a pod; empty if it did not.

    Args:
      events: Events about the pod.
    """
    events = list(events)
    if was_started(events):
        return ""
    warnings = [
        event for event in events if event.type == "Warning" and event.source and event.source.component == "kubelet"
    ]
    latest = max(warnings, key=_time, default=None)
    return f"{latest.reason}: {latest.message}" if latest else ""


def _time(event: client.CoreV1Event) -> datetime:
    """Returns when an event last happened."""
    # Controllers that write events.k8s.io, such as JobSet 0.11, set `event_time` and,
    # once it happens again, `series`.
    repeated = event.series.last_observed_time if event.series else None
    time: datetime = repeated or event.last_timestamp or event.event_time or event.metadata.creation_timestamp or LONG_AGO
    return time

"""Finds out why pods of a TFJob do not exist, or do not start, from events.

The Training Operator does not say in a TFJob's status that the cluster refuses its
pods: it only writes an event, and tries again. Pure functions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from kubernetes import client

FINAL_SECONDS = 45.0  # for a refusal that only a person can end
OTHER_SECONDS = 300.0  # for one that may pass: a webhook or the API server does not answer

_LONG_AGO = datetime.fromtimestamp(0, timezone.utc)
_REFUSED = "FailedCreatePod"
_PREFIX = re.compile(r"^(\(combined from similar events\): )?(Error creating: )?")
_DENIED = re.compile(r"is forbidden|is invalid|denied the request")
_USED = re.compile(r"exceeded quota: .*used: (?P<used>.*?), limited: ")


def missing_pods(job: Mapping[str, Any], pods: Iterable[client.V1Pod]) -> frozenset[str]:
    """Returns the names of pods that a TFJob should have and does not have."""
    name = job["metadata"]["name"]
    expected = {
        f"{name}-{kind.lower()}-{index}"
        for kind, replica in job["spec"]["tfReplicaSpecs"].items()
        for index in range(replica["replicas"])
    }
    return frozenset(expected - {pod.metadata.name for pod in pods})


def find_refusal(job: Mapping[str, Any], pods: Sequence[client.V1Pod], events: Iterable[client.CoreV1Event]) -> str:
    """Returns the cluster's words when it last refused a pod; empty if it has not.

    Args:
      job: The TFJob. Refusals from before its last start or suspension do not count.
      pods: Its pods. Refusals from before the last one was created do not count.
      events: Events about the TFJob.
    """
    since = max([_last_start(job), *(pod.metadata.creation_timestamp for pod in pods)])
    refusals = [event for event in events if event.reason == _REFUSED and _time(event) >= since]
    return _PREFIX.sub("", max(refusals, key=_time).message) if refusals else ""


def patience(refusal: str, quota_timeout_seconds: float) -> float:
    """Returns for how many seconds it makes sense to wait until a refusal ends.

    Args:
      refusal: The cluster's words.
      quota_timeout_seconds: Seconds to wait for others to free a part of a quota.
    """
    quota = _USED.search(refusal)
    if quota and re.search(r"=(?!0(,|$))", quota["used"]):
        return quota_timeout_seconds
    # A quota of which nothing is used will not be freed: it is too small.
    return FINAL_SECONDS if _DENIED.search(refusal) else OTHER_SECONDS


def find_mount_failure(events: Sequence[client.CoreV1Event]) -> str:
    """Returns why volumes of a pod cannot be mounted; empty if they can.

    Args:
      events: All events about the pod. Later ones mean that the volumes are there.
    """
    latest = max(events, key=_time, default=None)
    return str(latest.message) if latest and latest.reason == "FailedMount" else ""


def find_failed_start(events: Iterable[client.CoreV1Event]) -> str:
    """Returns why a container could not be started; empty if it could.

    Args:
      events: Events about the container's pod.
    """
    failures = [event for event in events if event.reason == "Failed"]
    return str(max(failures, key=_time).message) if failures else ""


def _last_start(job: Mapping[str, Any]) -> datetime:
    """Returns when a TFJob was last started, suspended or resumed."""
    status = job.get("status") or {}
    times = [status.get("startTime")]
    for condition in status.get("conditions") or ():
        if condition["type"] == "Suspended":
            times.append(condition.get("lastTransitionTime"))
    return max([datetime.fromisoformat(time.replace("Z", "+00:00")) for time in times if time], default=_LONG_AGO)


def _time(event: client.CoreV1Event) -> datetime:
    """Returns when an event last happened."""
    time: datetime = event.last_timestamp or event.event_time or event.metadata.creation_timestamp or _LONG_AGO
    return time

"""Interprets what Kueue says about queues, and about a job that waits in one.

Pure functions. Source: release 0.15 of https://github.com/kubernetes-sigs/kueue.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

GROUP = "kueue.x-k8s.io"
JOB_UID_LABEL = f"{GROUP}/job-uid"
_TOO_LARGE = re.compile(r"insufficient quota for .* maximum capacity|unavailable in ClusterQueue")
_MAY_FIT = "insufficient unused quota"


def find_problem(name: str, namespace: str, queues: Sequence[Mapping[str, Any]]) -> str:
    """Returns why no job can wait in a queue; empty if one can.

    Args:
      name: Name of the queue.
      namespace: Namespace of the job.
      queues: All LocalQueues of the namespace.
    """
    queue = next((queue for queue in queues if queue["metadata"]["name"] == name), None)
    if queue is None:
        names = sorted(queue["metadata"]["name"] for queue in queues)
        known = (
            f"write one of {', '.join(names)}" if names else "it has no queue at all: have one created, or leave queue out"
        )
        return f"namespace {namespace} has no LocalQueue {name}; {known}"
    active = _find_condition(queue, "Active")
    if active.get("reason") == "ClusterQueueDoesNotExist":
        cluster_queue = queue["spec"].get("clusterQueue")
        return f"LocalQueue {name} belongs to ClusterQueue {cluster_queue}, which does not exist; have it created"
    return ""


def find_wait(workloads: Sequence[Mapping[str, Any]]) -> str:
    """Returns what a job waits for; empty if Kueue has not said so.

    Args:
      workloads: The Workloads that Kueue has made for the job.
    """
    for workload in workloads:
        reserved, evicted = _find_condition(workload, "QuotaReserved"), _find_condition(workload, "Evicted")
        if reserved.get("status") == "True":
            continue
        words = [str(condition.get("message", "")) for condition in (evicted, reserved) if condition]
        # When it was preempted and has just begun to wait again, both say the same.
        return "; ".join(dict.fromkeys(filter(None, words)))
    return ""


def is_too_large(wait: str) -> bool:
    """Returns True if a job waits for more than its queue ever has."""
    return bool(_TOO_LARGE.search(wait)) and _MAY_FIT not in wait


def _find_condition(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Returns a condition of a document; empty if it is not there or does not hold."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    found: Mapping[str, Any] = next((condition for condition in conditions if condition["type"] == kind), {})
    return {} if kind == "Evicted" and found.get("status") != "True" else found

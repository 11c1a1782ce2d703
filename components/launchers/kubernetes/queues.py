"""Interprets what Kueue says about queues, and about a job that waits in one.

Pure functions. Source: release 0.15 of https://github.com/kubernetes-sigs/kueue.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GROUP = "kueue.x-k8s.io"
JOB_UID_LABEL = f"{GROUP}/job-uid"
_UNASSIGNED = re.compile(r"couldn't assign flavors to pod set [^:]+: (.*)")
_TOO_LARGE = r"insufficient quota for .*? maximum capacity( \([^)]*\))?|resource \S+ unavailable in ClusterQueue"
_NO_SUCH_MACHINE = r"untolerated taint .*? in flavor \S+|flavor \S+ (doesn't match node affinity|not found)"
_NEVER = re.compile(f"({_TOO_LARGE}|{_NO_SUCH_MACHINE})(, |$)")
_OTHER_NAMESPACE = "namespace doesn't match ClusterQueue selector"


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


@dataclass(frozen=True)
class Wait:
    """The reason why a job waits in a queue.

    Attributes:
      words: Kueue's words; empty if it has not said so.
      remedy: What to do if the wait does not end by itself; empty if it may.
    """

    words: str = ""
    remedy: str = ""


def find_wait(workloads: Sequence[Mapping[str, Any]]) -> Wait:
    """Returns what a job waits for.

    Args:
      workloads: The Workloads that Kueue has made for the job.
    """
    for workload in workloads:
        evicted, finished = _find_condition(workload, "Evicted"), _find_condition(workload, "Finished")
        # One that is evicted is admitted still until its pods have ended.
        if not evicted and _find_condition(workload, "Admitted").get("status") == "True":
            continue
        reserved = _find_condition(workload, "QuotaReserved")
        has_quota = reserved.get("status") == "True"
        if has_quota and not evicted:
            return Wait("; ".join(_pending_checks(workload)))
        reasons = (finished, evicted, *(() if has_quota else (reserved,)))
        # When it was preempted and has just begun to wait again, both say the same.
        said = (str(reason.get("message", "")) for reason in reasons if reason)
        words = "; ".join(dict.fromkeys(filter(None, said)))
        return Wait(words, _find_remedy(workload, words, evicted, finished))
    return Wait()


def _pending_checks(workload: Mapping[str, Any]) -> list[str]:
    """Describes the admission checks that a job with a reserved quota waits for."""
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    return [
        f"admission check {check['name']} is {check['state']}: {check.get('message', '')}"
        for check in checks
        if check.get("state") != "Ready"
    ]


def _find_remedy(workload: Mapping[str, Any], words: str, evicted: Mapping[str, Any], finished: Mapping[str, Any]) -> str:
    if finished.get("status") == "True" or str(evicted.get("reason", "")).startswith("Deactivated"):
        name = workload["metadata"]["name"]
        return f"remove the cause, set spec.active of Workload {name} to true if it is false, and run again"
    if reasons := _find_lasting_reasons(words):
        if re.search(_NO_SUCH_MACHINE, reasons):
            return "write another accelerator, node_selector or tolerations in resources, or another queue"
        return "ask for smaller or fewer machines in resources, or have the quota of the ClusterQueue raised"
    if _OTHER_NAMESPACE in words:
        return "run in a namespace that the ClusterQueue selects, or write another queue"
    return ""


def _find_lasting_reasons(words: str) -> str:
    """Returns why pods will never get machines; empty if they may.

    Kueue gives a reason for each flavor. As long as one may pass, so may the wait.
    """
    reasons = (match[1] for part in words.split("; ") if (match := _UNASSIGNED.fullmatch(part)))
    return next((each for each in reasons if not _NEVER.sub("", each)), "")


def _find_condition(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Returns a condition of a document; empty if it is not there or does not hold."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    found: Mapping[str, Any] = next((condition for condition in conditions if condition["type"] == kind), {})
    return {} if kind == "Evicted" and found.get("status") != "True" else found

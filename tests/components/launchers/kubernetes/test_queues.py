"""Tests what is concluded from what Kueue says."""

import pytest

from tfx_distribute.components.launchers.kubernetes import queues

FITS_LATER = (
    "couldn't assign flavors to pod set chief: insufficient unused quota for cpu in flavor small, 1 more needed, "
    "insufficient quota for cpu in flavor tiny, previously considered podsets requests (0) + current podset request (2) > "
    "maximum capacity (1)"
)
NEVER_FITS = (
    "couldn't assign flavors to pod set worker: insufficient quota for cpu in flavor small, previously considered podsets "
    "requests (2) + current podset request (1) > maximum capacity (2)"
)


def local_queue(name, **condition):
    status = {"conditions": [{"type": "Active", "status": "True", **condition}]}
    return {"metadata": {"name": name}, "spec": {"clusterQueue": "all"}, "status": status}


def test_queues():
    assert queues.find_problem("a", "team", [local_queue("a")]) == ""
    assert queues.find_problem("a", "team", [local_queue("c"), local_queue("b")]) == (
        "namespace team has no LocalQueue a; write one of b, c"
    )
    assert "it has no queue at all" in queues.find_problem("a", "team", [])
    lost = local_queue("a", status="False", reason="ClusterQueueDoesNotExist")
    assert "ClusterQueue all, which does not exist" in queues.find_problem("a", "team", [lost])
    stopped = local_queue("a", status="False", reason="ClusterQueueIsInactive")
    assert queues.find_problem("a", "team", [stopped]) == "", "it may be resumed"
    assert queues.find_problem("a", "team", [{"metadata": {"name": "a"}, "spec": {}}]) == "", "it is new"


def workload(*conditions):
    return {
        "status": {"conditions": [{"type": kind, "status": status, "message": text} for kind, status, text in conditions]}
    }


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([], ""),
        ([("QuotaReserved", "False", "no room")], "no room"),
        ([("QuotaReserved", "True", "Quota reserved in ClusterQueue all"), ("Admitted", "True", "is admitted")], ""),
        ([("QuotaReserved", "False", "Preempted"), ("Evicted", "True", "Preempted")], "Preempted"),
        ([("QuotaReserved", "False", "no room"), ("Evicted", "True", "Preempted")], "Preempted; no room"),
        ([("QuotaReserved", "False", "no room"), ("Evicted", "False", "Preempted before")], "no room"),
    ],
)
def test_what_a_job_waits_for(conditions, words):
    assert queues.find_wait([workload(*conditions)]) == words


def test_a_job_without_a_workload_yet():
    assert queues.find_wait([]) == ""
    assert queues.find_wait([{}]) == ""


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (FITS_LATER, False),
        (NEVER_FITS, True),
        ("couldn't assign flavors to pod set chief: resource nvidia.com/gpu unavailable in ClusterQueue", True),
        ("insufficient unused quota for cpu in flavor small, 1 more needed", False),
        ("Preempted to accommodate a workload", False),
    ],
)
def test_jobs_that_never_fit(words, never):
    assert queues.is_too_large(words) == never

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

UNASSIGNED = "couldn't assign flavors to pod set chief:"
TAINT = "{cloud.google.com/gke-spot true NoSchedule <nil>}"


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


def workload(*conditions, **status):
    written = [{"type": kind, "status": value, "message": text} for kind, value, text in conditions]
    return {"metadata": {"name": "w"}, "status": {"conditions": written, **status}}


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([], ""),
        ([("QuotaReserved", "False", "no room")], "no room"),
        ([("QuotaReserved", "True", "Quota reserved in ClusterQueue all"), ("Admitted", "True", "is admitted")], ""),
        ([("QuotaReserved", "False", "Preempted"), ("Evicted", "True", "Preempted")], "Preempted"),
        ([("QuotaReserved", "False", "no room"), ("Evicted", "True", "Preempted")], "Preempted; no room"),
        ([("QuotaReserved", "False", "no room"), ("Evicted", "False", "Preempted before")], "no room"),
        # Its pods have not ended yet.
        ([("QuotaReserved", "True", "reserved"), ("Admitted", "True", "is"), ("Evicted", "True", "Preempted")], "Preempted"),
        ([("QuotaReserved", "True", "reserved"), ("Admitted", "True", "is"), ("Evicted", "False", "Preempted before")], ""),
    ],
)
def test_what_a_job_waits_for(conditions, words):
    assert queues.find_wait([workload(*conditions)]) == queues.Wait(words)


def test_admission_checks():
    checks = [
        {"name": "provisioning", "state": "Pending", "message": "no machine yet"},
        {"name": "budget", "state": "Ready", "message": "fine"},
    ]
    waiting = workload(("QuotaReserved", "True", "reserved"), admissionChecks=checks)
    assert queues.find_wait([waiting]) == queues.Wait("admission check provisioning is Pending: no machine yet")


def test_a_job_without_a_workload_yet():
    assert queues.find_wait([]) == queues.Wait()
    assert queues.find_wait([{}]) == queues.Wait()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (FITS_LATER, ""),
        (NEVER_FITS, "ask for smaller"),
        ("couldn't assign flavors to pod set chief: resource nvidia.com/gpu unavailable in ClusterQueue", "ask for smaller"),
        (f"{FITS_LATER}; {NEVER_FITS}", "ask for smaller"),
        (
            f"{UNASSIGNED} flavor t4 doesn't match node affinity, untolerated taint {TAINT} in flavor spot",
            "write another accel",
        ),
        (f"{UNASSIGNED} flavor t4 not found", "write another accelerator"),
        (
            f"{UNASSIGNED} flavor t4 doesn't match node affinity, {NEVER_FITS.partition(': ')[2]}",
            "write another accelerator",
        ),
        (f"{UNASSIGNED} flavor t4 doesn't match node affinity, {FITS_LATER.partition(': ')[2]}", ""),
        (f'{UNASSIGNED} topology "racks" allows to fit only 1 out of 2 pod(s), untolerated taint {TAINT} in flavor b', ""),
        (f"{UNASSIGNED} insufficient unused quota for cpu in flavor small, 1 more needed", ""),
        ("Workload namespace doesn't match ClusterQueue selector", "run in a namespace"),
        ("Preempted to accommodate a workload", ""),
    ],
)
def test_waits_that_do_not_end_by_themselves(words, remedy):
    wait = queues.find_wait([workload(("QuotaReserved", "False", words))])
    assert wait.words == words
    assert wait.remedy.startswith(remedy)
    assert bool(wait.remedy) == bool(remedy)


def test_a_workload_that_is_not_active():
    conditions = [
        {"type": "QuotaReserved", "status": "False", "message": "The workload is deactivated"},
        {"type": "Evicted", "status": "True", "reason": "DeactivatedDueToAdmissionCheck", "message": "rejected"},
    ]
    wait = queues.find_wait([{"metadata": {"name": "w"}, "status": {"conditions": conditions}}])
    assert wait.words == "rejected; The workload is deactivated"
    assert "set spec.active of Workload w to true" in wait.remedy

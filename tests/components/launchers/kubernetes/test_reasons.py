"""Tests what is concluded from the cluster's words."""

import pytest

from tfx_distribute.components.launchers.kubernetes import reasons

FORBIDDEN = 'pods "digits-1-chief-0" is forbidden: '
NEVER_FITS = (
    "couldn't assign flavors to pod set chief: insufficient quota for cpu in flavor default, previously considered podsets "
    "requests (0) + current podset request (3) > maximum capacity (2)"
)


@pytest.mark.parametrize(
    ("words", "is_final"),
    [
        (f"{FORBIDDEN}exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2", False),
        (f"{FORBIDDEN}failed quota: q: must specify limits.cpu for: tensorflow", True),
        (f'{FORBIDDEN}violates PodSecurity "restricted:latest": runAsNonRoot != true', True),
        (f'{FORBIDDEN}error looking up service account team/x: serviceaccount "x" not found', True),
        ("Failed: Error: container has runAsNonRoot and image will run as root", True),
        (NEVER_FITS, False),
        ("LocalQueue nobody doesn't exist", True),
    ],
)
def test_what_no_waiting_ends(words, is_final):
    assert reasons.is_final(words) == is_final


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1", "quota of the namespace raised"),
        ("ended with exit code 137 (OOMKilled)", "more memory"),
        ('error looking up service account team/x: serviceaccount "x" not found', "targets.kubeflow.service_account"),
        ("couldn't find key k in Secret team/s3", "targets.kubeflow.secrets"),
        ('0/1 nodes are available: persistentvolumeclaim "x" not found.', "targets.kubeflow.volumes"),
        ('exec: "python": executable file not found in $PATH', "the image lacks tfx-distribute"),
        ("(ModuleNotFoundError: No module named 'tfx_distribute')", "the image lacks tfx-distribute"),
        (NEVER_FITS, "ask for smaller"),
        ("LocalQueue nobody doesn't exist", "targets.kubeflow.queue"),
    ],
)
def test_remedies(words, remedy):
    assert reasons.with_remedy(words).startswith(f"{words}; ")
    assert remedy in reasons.find_remedy(words)


def test_words_that_nobody_knows_stay_as_they_are():
    assert reasons.with_remedy("something else") == "something else"


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
        ([("QuotaReserved", "False", "no room"), ("Evicted", "False", "Preempted before")], "no room"),
    ],
)
def test_what_a_job_waits_for(conditions, words):
    assert reasons.find_wait([workload(*conditions)]) == words


def test_admission_checks():
    checks = [
        {"name": "provisioning", "state": "Pending", "message": "no machine yet"},
        {"name": "budget", "state": "Ready", "message": "fine"},
    ]
    waiting = workload(("QuotaReserved", "True", "reserved"), admissionChecks=checks)
    assert reasons.find_wait([waiting]) == "admission check provisioning is Pending: no machine yet"
    assert reasons.find_wait([{}]) == reasons.find_wait([]) == ""

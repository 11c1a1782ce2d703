"""Tests what is concluded from the cluster's words."""

import pytest

from tfx_distribute.components.launchers.kubernetes import reasons

FORBIDDEN = 'pods "digits-1-chief-0" is forbidden: '
UNASSIGNED = "couldn't assign flavors to pod set chief:"
FITS_LATER = f"{UNASSIGNED} insufficient unused quota for cpu in flavor default, 1 more needed"
NEVER_FITS = (
    f"{UNASSIGNED} insufficient quota for cpu in flavor default, previously considered podsets requests (0) + current "
    "podset request (3) > maximum capacity (2)"
)
TAINT = "{spot true NoSchedule <nil>}"


@pytest.mark.parametrize(
    ("words", "is_final"),
    [
        (f"{FORBIDDEN}exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2", False),
        (f"{FORBIDDEN}exceeded quota: q, requested: cpu=8,pods=1, used: cpu=500m,pods=0, limited: cpu=8,pods=2", False),
        # More than the whole of it, whoever uses it.
        (f"{FORBIDDEN}exceeded quota: q, requested: cpu=8,pods=1, used: cpu=500m,pods=1, limited: cpu=4,pods=2", True),
        (f"{FORBIDDEN}exceeded quota: q, requested: memory=2Gi, used: memory=0, limited: memory=512Mi", True),
        (f"{FORBIDDEN}exceeded quota: q, requested: something, used: else, limited: here", False),
        (f"{FORBIDDEN}status unknown for quota: q, resources: pods", False),
        (f"{FORBIDDEN}failed quota: q: must specify limits.cpu for: tensorflow", True),
        (f"{FORBIDDEN}no PriorityClass with name high was found", True),
        (f'{FORBIDDEN}violates PodSecurity "restricted:latest": runAsNonRoot != true', True),
        ('pods "x" is forbidden: error looking up service account team/x: serviceaccount "x" not found', True),
        ('admission webhook "policy" denied the request: no', True),
        ('Internal error occurred: failed calling webhook "policy": connection refused', False),
        ('Failed to pull image "x": not found', False),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", False),
        (FITS_LATER, False),
        (NEVER_FITS, True),
        (f"{FITS_LATER}; {NEVER_FITS}", True),
        (f"{UNASSIGNED} resource nvidia.com/gpu unavailable in ClusterQueue", True),
        (f"{UNASSIGNED} flavor t4 doesn't match node affinity, untolerated taint {TAINT} in flavor spot", True),
        (f"{UNASSIGNED} flavor t4 doesn't match node affinity, {FITS_LATER.partition(': ')[2]}", False),
        (
            f'{UNASSIGNED} topology "racks" allows to fit only 1 out of 2 pod(s), untolerated taint {TAINT} in flavor b',
            False,
        ),
        ("LocalQueue nobody doesn't exist", True),
        ("ClusterQueue team is inactive", False),
        ("Workload namespace doesn't match ClusterQueue selector", True),
        ("Preempted to accommodate a workload", False),
        ('FailedCreate: admission webhook "mpod.kb.io" denied the request: Job.batch "digits-worker-0" not found', False),
        ('FailedCreate: admission webhook "guard.example.com" denied the request: no image of ours', True),
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
        (NEVER_FITS, "ask for smaller"),
        (f"{UNASSIGNED} untolerated taint {TAINT} in flavor spot", "write another accelerator"),
        ("LocalQueue nobody doesn't exist", "targets.kubeflow.queue"),
    ],
)
def test_remedies(words, remedy):
    assert reasons.with_remedy(words).startswith(f"{words}; ")
    assert remedy in reasons.find_remedy(words)


def test_words_that_nobody_knows_stay_as_they_are():
    assert reasons.with_remedy("something else") == "something else"


def test_output_of_an_image_without_the_package():
    line = "Error while finding module specification (ModuleNotFoundError: No module named 'tfx_distribute')"
    assert "the image lacks tfx-distribute" in reasons.find_remedy_for_output([line])
    assert reasons.find_remedy_for_output(["ModuleNotFoundError: No module named 'mine'"]) == ""


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

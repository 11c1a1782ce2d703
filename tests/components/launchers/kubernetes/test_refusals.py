"""Tests what is concluded from events about a job and its pods."""

from datetime import datetime, timezone

import pytest
from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import refusals, remedies
from tfx_distribute.components.launchers.kubernetes.job_kind import LONG_AGO

NAME = "digits-1"
FORBIDDEN = 'pods "digits-1-chief-0" is forbidden: '


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)


def event(second: int, message: str = "no", reason: str = "FailedCreatePod", kind: str = "Warning") -> client.CoreV1Event:
    about = client.V1ObjectReference(kind="TFJob", name=NAME)
    meta = client.V1ObjectMeta(name=f"{NAME}.{second}")
    return client.CoreV1Event(
        metadata=meta, involved_object=about, reason=reason, message=message, type=kind, last_timestamp=at(second)
    )


def pod(name: str, second: int = 0) -> client.V1Pod:
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name, creation_timestamp=at(second)))


def find(events, since=LONG_AGO, pods=()):
    return refusals.find_refusal(("FailedCreatePod", "FailedCreateService"), since, pods, events)


def test_the_last_refusal_in_the_cluster_s_words():
    events = [
        event(1, "Error creating: first"),
        event(3, "(combined from similar events): Error creating: last"),
        event(2, "Error creating: second"),
        event(4, "Created pod", "SuccessfulCreatePod"),
    ]
    assert find(events) == "last"
    assert find([]) == ""


def test_refusals_that_events_k8s_io_counts_in_a_series():
    first, other = event(1, "last", "FailedCreateService"), event(2)
    first.last_timestamp, first.event_time = None, at(1)
    assert find([first], since=at(3)) == ""
    first.series = client.CoreV1EventSeries(count=2, last_observed_time=at(3))
    assert find([first, other], since=at(3)) == "last"


def test_refusals_from_before_do_not_count():
    assert find([event(4)], since=at(5)) == ""
    assert find([event(4)], pods=[pod(f"{NAME}-chief-0", 5)]) == ""
    assert find([event(5)], since=at(5)) == "no"


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (f"{FORBIDDEN}exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2", 3600),
        (f"{FORBIDDEN}exceeded quota: q, requested: cpu=8,pods=1, used: cpu=500m,pods=0, limited: cpu=8,pods=2", 3600),
        # More than the whole of it, whoever uses it.
        (f"{FORBIDDEN}exceeded quota: q, requested: cpu=8,pods=1, used: cpu=500m,pods=1, limited: cpu=4,pods=2", 45),
        (f"{FORBIDDEN}exceeded quota: q, requested: memory=2Gi, used: memory=0, limited: memory=512Mi", 45),
        (f"{FORBIDDEN}exceeded quota: q, requested: something, used: else, limited: here", 3600),
        (f"{FORBIDDEN}failed quota: q: must specify limits.cpu for: tensorflow", 45),
        (f"{FORBIDDEN}no PriorityClass with name high was found", 45),
        ('admission webhook "policy" denied the request: no', 45),
        ('Internal error occurred: failed calling webhook "policy": connection refused', 400),
    ],
)
def test_patience(words, seconds):
    assert refusals.patience(words, 3600) == seconds


def test_the_last_failed_start():
    events = [event(2, "executable file not found", "Failed"), event(1, "first", "Failed"), event(3, "Pulled", "Pulled")]
    assert refusals.find_failed_start(events) == "executable file not found"
    assert refusals.find_failed_start([event(3, "Pulled", "Pulled")]) == ""


def test_a_pod_is_ready_when_something_happened_after_a_warning():
    failed, pulling = event(1, "no secret", "FailedMount"), event(2, "Pulling image", "Pulling", "Normal")
    assert refusals.find_obstacle([failed]) == "FailedMount: no secret"
    assert refusals.find_obstacle([pulling, failed]) == ""
    assert refusals.find_obstacle([]) == ""
    same_second = event(1, "Pulling image", "Pulling", "Normal")
    assert refusals.find_obstacle([failed, same_second]) == ""
    assert refusals.find_obstacle([failed, pulling, event(3, "no network", "FailedCreatePodSandBox")]) == (
        "FailedCreatePodSandBox: no network"
    )


@pytest.mark.parametrize(
    ("words", "final"),
    [
        ('FailedMount: MountVolume.SetUp failed for volume "key" : secret "key" not found', True),
        ('FailedMount: MountVolume.SetUp failed for volume "key" : references non-existent secret key: x', True),
        ('FailedMount: MountVolume.SetUp failed for volume "data" : timed out waiting for the condition', False),
        ("FailedAttachVolume: Multi-Attach error for volume: Volume is already used by pod(s) other", False),
        ('FailedCreatePodSandBox: no runtime for "kata" is configured: not found', False),
        ("", False),
    ],
)
def test_obstacles_that_will_not_pass(words, final):
    assert refusals.will_not_pass(words) == final


def test_a_refused_name_counts_as_a_refused_pod():
    refused = event(3, "Error creating: services is forbidden", "FailedCreateService")
    assert find([refused]) == "services is forbidden"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1", "quota of the namespace raised"),
        (
            "exceeded quota: q, requested: count/tfjobs.kubeflow.org=1, used: count/tfjobs.kubeflow.org=1, limited: "
            "count/tfjobs.kubeflow.org=1",
            "delete a job of the namespace that has ended",
        ),
        (
            "exceeded quota: q, requested: count/tfjobs.kubeflow.org=1, used: count/tfjobs.kubeflow.org=0, limited: "
            "count/tfjobs.kubeflow.org=0",
            "quota of the namespace raised",
        ),
        ("ended with exit code 137 (OOMKilled)", "more memory"),
        ("failed (Evicted: Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. )", "own disk"),
        ('error looking up service account team/x: serviceaccount "x" not found', "targets.kubeflow.service_account"),
        ("maximum memory usage per Container is 1Gi, but limit is 4Gi", "in resources"),
        ("couldn't find key k in Secret team/s3", "targets.kubeflow.secrets"),
        ('0/1 nodes are available: persistentvolumeclaim "x" not found.', "targets.kubeflow.volumes"),
        ('exec: "python": executable file not found in $PATH', "the image lacks tfx-distribute"),
    ],
)
def test_remedies(words, remedy):
    assert remedies.with_remedy(words).startswith(f"{words}; ")
    assert remedy in remedies.find_remedy(words)


def test_words_that_nobody_knows_stay_as_they_are():
    assert remedies.with_remedy("something else") == "something else"


def test_output_of_an_image_without_the_package():
    line = (
        "Error while finding module specification for 'tfx_distribute.trainer_module' (ModuleNotFoundError: No module named "
    )
    assert "the image lacks tfx-distribute" in remedies.find_remedy_for_output([f"{line}'tfx_distribute')"])
    assert remedies.find_remedy_for_output(["ModuleNotFoundError: No module named 'mine'"]) == ""

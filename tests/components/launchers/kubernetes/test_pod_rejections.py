"""Tests what the step does about pods that machines reject, in a fake cluster."""

import time

import pytest
from tfjobs import NAME, NAMESPACE, condition, exists, pod, rejected_pod, start, status, wait_until_seen

from tfx_distribute.components.launchers.kubernetes import pod_starts
from tfx_distribute.components.launchers.kubernetes.pod_history import PodHistory
from tfx_distribute.components.launchers.kubernetes.pod_rejections import PodRejections
from tfx_distribute.trainer_module.errors import TrainingError

CHIEF = f"{NAME}-chief-0"
WORDS = f"pod {CHIEF} failed (UnexpectedAdmissionError: "


def replace_pod(api, launch, document):
    """Does as the operator with a pod that has failed."""
    if any(each["metadata"]["name"] == CHIEF for each in api.objects("pods")):
        api.remove(NAMESPACE, CHIEF)
    made = api.set_pod(NAMESPACE, document)
    wait_until_seen(api, launch)
    return made


def pending_pod():
    return pod() | {"status": {"phase": "Pending"}}


def test_rejected_pods_use_up_no_restart(api, caplog, monkeypatch):
    """The operator makes another at once, until the device plugin is up."""
    monkeypatch.setattr(pod_starts, "START_SECONDS", 60.0)
    launch = start(api, max_restarts=1)
    for number in range(4):
        replace_pod(api, launch, rejected_pod(str(number)))
    assert launch.is_running
    assert caplog.text.count(f"{WORDS}Pod was rejected: Allocate failed") == 1
    assert "this uses up no restart" in caplog.text
    replace_pod(api, launch, pod())
    replace_pod(api, launch, rejected_pod("lost"))  # its machine starts again: this is the restart
    replace_pod(api, launch, rejected_pod("again"))
    replace_pod(api, launch, pod())
    assert launch.is_running
    replace_pod(api, launch, pod())
    assert str(launch.wait()).endswith("All 1 restarts (max_restarts) are used up")


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_lasting_rejection_ends_the_step(api, is_seen):
    """Its pods may be gone before anybody sees that they have failed."""
    launch = start(api)
    began = time.monotonic()
    while launch.is_running and time.monotonic() - began < 20:
        made = replace_pod(api, launch, rejected_pod("1") if is_seen else pending_pod())
        if not is_seen:
            api.add_event(made, "UnexpectedAdmissionError", "Allocate failed", component="kubelet")
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert WORDS in str(error)
    assert "; machines have rejected all pods of chief for 0.5 s. See with" in str(error)
    assert not exists(api)


def test_pods_that_are_removed_while_they_wait_are_not_rejected(api, caplog):
    launch = start(api, max_restarts=0)
    for _ in range(5):
        made = replace_pod(api, launch, pending_pod())
        api.add_event(made, "FailedScheduling", "0/3 nodes are available", component="default-scheduler")
    assert launch.is_running
    assert "rejected" not in caplog.text
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_a_pod_that_is_admitted_ends_the_wait(api):
    launch = start(api)
    admitted = pending_pod()
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    container = {"name": "tensorflow", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": waiting}
    admitted["status"]["containerStatuses"] = [container]
    replace_pod(api, launch, rejected_pod("1"))
    replace_pod(api, launch, admitted)
    time.sleep(0.7)
    replace_pod(api, launch, rejected_pod("2"))
    assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_time_counts_while_the_pods_are_needed(api, jobs, monkeypatch):
    monkeypatch.setattr(pod_starts, "START_SECONDS", 0.0)
    api.set_pod(NAMESPACE, rejected_pod())
    said = []
    (rejected,) = jobs.list_pods()
    rejections = PodRejections(jobs, PodHistory(jobs), said.append)
    for is_needed in (False, True, False, True):
        rejections.observe(rejected, None, is_needed)
    assert WORDS in said[0], "needed or not"
    with pytest.raises(TrainingError, match=CHIEF):
        rejections.observe(rejected, None, is_needed=True)


def test_containers_that_cannot_be_started_use_up_restarts(api, caplog):
    """The operator removes their pods before anybody sees that they have failed."""
    launch = start(api, max_restarts=1)
    began = time.monotonic()
    while launch.is_running and time.monotonic() - began < 20:
        made = replace_pod(api, launch, pending_pod())
        message = 'Error: failed to create containerd task: exec: "python": executable file not found in $PATH'
        api.add_event(made, "Failed", message, component="kubelet")
    error = str(launch.wait())
    assert "executable file not found in $PATH; the image lacks tfx-distribute" in error
    assert error.endswith("All 1 restarts (max_restarts) are used up")
    assert "this uses up no restart" not in caplog.text

"""Tests what the step says and does about pods that wait, in a fake cluster."""

import time

import pytest
from running import wait_until
from tfjobs import NAME, NAMESPACE, condition, exists, pod, rejected_pod, start, status, tfjob, wait_until_seen

from tfx_distribute.components.launchers.kubernetes import pod_starts
from tfx_distribute.components.launchers.kubernetes.job_kind import Owner
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution


def test_what_a_pod_waits_for_is_logged_once(api, caplog):
    caplog.set_level("INFO", logger="absl")
    launch = start(api)
    document = pod()
    message = "0/3 nodes have nvidia.com/gpu"
    unscheduled = condition("PodScheduled", reason="Unschedulable", message=message) | {"status": "False"}
    document["status"] = {"phase": "Pending", "conditions": [unscheduled]}
    api.set_pod(NAMESPACE, document)
    line = f"pod {NAME}-chief-0 waits for a node (Unschedulable: {message})"
    wait_until(lambda: line in caplog.text)
    time.sleep(0.5)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None
    assert [record.getMessage() for record in caplog.records].count(line) == 1


def waiting_pod(reason, message=None, **of):
    """Returns a pod whose container waits on a machine."""
    document = pod(**of)
    waiting = {"waiting": {"reason": reason, "message": message}}
    container = {"name": "tensorflow", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": waiting}
    document["status"] = {"phase": "Pending", "containerStatuses": [container]}
    return document


@pytest.mark.parametrize(
    ("reason", "message", "remedy"),
    [
        ("ImagePullBackOff", "no such image", "write another targets.kubeflow.image"),
        ("CreateContainerConfigError", 'secret "s3" not found', "create it in the namespace, or change targets."),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", "give the image a USER"),
    ],
)
def test_a_container_that_cannot_be_created(api, caplog, reason, message, remedy):
    launch = start(api)
    api.set_pod(NAMESPACE, waiting_pod(reason, message))
    words = f"pod {NAME}-chief-0 cannot start ({reason}: {message}); {remedy}"
    wait_until(lambda: words in caplog.text)
    assert launch.is_running, "told at once, given up later"
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert words in str(error)
    assert caplog.text.count(words) == 1
    assert not exists(api)


WORKER = {"name": f"{NAME}-worker-0", "replica": "worker"}


@pytest.mark.parametrize("cannot_start", [waiting_pod("ImagePullBackOff", **WORKER), rejected_pod(**WORKER)])
def test_a_worker_of_parameter_servers_is_lost(api, caplog, cannot_start):
    """The training goes on without it, but does not begin without it."""
    launch = start(api, manifest=tfjob(distribution=Distribution("parameter_server", 1, 1)))
    for document in (pod(), pod(name=f"{NAME}-ps-0", replica="ps"), pod(**WORKER)):
        api.set_pod(NAMESPACE, document)
    wait_until_seen(api)
    api.remove(NAMESPACE, WORKER["name"])
    api.set_pod(NAMESPACE, cannot_start)
    wait_until(lambda: f"pod {WORKER['name']} " in caplog.text)
    time.sleep(1.5)
    assert launch.is_running
    api.set_pod(NAMESPACE, pod() | {"status": {"phase": "Pending"}})  # the chief is lost too, and needs all others
    assert WORKER["name"] in str(launch.wait())


def test_a_worker_of_parameter_servers_that_never_started(api):
    launch = start(api, manifest=tfjob(distribution=Distribution("parameter_server", 1, 1)))
    for document in (pod(), pod(name=f"{NAME}-ps-0", replica="ps"), waiting_pod("ImagePullBackOff", **WORKER)):
        api.set_pod(NAMESPACE, document)
    assert f"pod {WORKER['name']} cannot start (ImagePullBackOff" in str(launch.wait())


def test_time_counts_while_a_pod_is_needed(api, jobs, monkeypatch):
    monkeypatch.setattr(pod_starts, "START_SECONDS", 0.0)
    api.set_pod(NAMESPACE, waiting_pod("ImagePullBackOff"))
    said = []
    (made,) = jobs.list_pods()
    starts = pod_starts.PodStarts(jobs, (), said.append)
    for is_needed in (False, True, False, True):
        starts.observe(made, is_needed)
    assert "cannot start (ImagePullBackOff" in said[0], "needed or not"
    with pytest.raises(TrainingError, match=made.metadata.name):
        starts.observe(made, is_needed=True)


def test_a_claim_that_does_not_exist(api):
    launch = start(api)
    document = pod()
    message = 'persistentvolumeclaim "data" not found'
    unscheduled = condition("PodScheduled", reason="Unschedulable", message=message) | {"status": "False"}
    document["status"] = {"phase": "Pending", "conditions": [unscheduled]}
    api.set_pod(NAMESPACE, document)
    assert f"cannot start (Unschedulable: {message}); create the claim in" in str(launch.wait())


def test_a_volume_that_cannot_be_mounted(api, caplog):
    launch = start(api)
    made = api.set_pod(NAMESPACE, waiting_pod("ContainerCreating"))
    time.sleep(1.0)
    assert launch.is_running, "nothing prevents its start"
    message = 'MountVolume.SetUp failed for volume "s": secret "s" not found'
    api.add_event(made, "FailedMount", message)
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert f"pod {NAME}-chief-0 cannot start (FailedMount: {message}); create it in the namespace" in str(error)
    assert str(error).partition(": ")[2] in caplog.text


@pytest.mark.parametrize(("user", "is_own"), [("digits-step", True), (f"{NAME}-chief-0", True), ("another-0", False)])
def test_a_volume_of_one_machine(api, caplog, user, is_own):
    """Another pod may end; the step, and the chief that waits for a worker, do not."""
    launch = start(api, manifest=tfjob(workers=2, owner=Owner("digits-step", "7")))
    api.set_pod(NAMESPACE, pod())
    made = api.set_pod(NAMESPACE, waiting_pod("ContainerCreating", **WORKER))
    message = f'Multi-Attach error for volume "v" Volume is already used by pod(s) elsewhere, {user}'
    api.add_event(made, "FailedAttachVolume", message)
    words = f"cannot start (FailedAttachVolume: {message}); a ReadWriteOnce volume works on one machine only"
    wait_until(lambda: words in caplog.text)
    if is_own:
        assert words in str(launch.wait())
    else:
        time.sleep(1.5)
        assert launch.is_running
        api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
        assert launch.wait() is None


def test_a_sidecar_that_fails_beside_a_training(api):
    launch = start(api)
    document = waiting_pod("CrashLoopBackOff", "back-off 5m0s restarting failed container")
    (sidecar,) = document["status"]["containerStatuses"]
    running = {**sidecar, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "ready": True}
    document["status"] = {
        "phase": "Pending",
        "initContainerStatuses": [{**sidecar, "name": "proxy"}],
        "containerStatuses": [running],
    }
    api.set_pod(NAMESPACE, document)
    time.sleep(1.5)
    assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_what_keeps_a_machine_from_making_a_pod(api, caplog):
    """The obstacle may go away, and the cluster words it differently each time."""
    caplog.set_level("INFO", logger="absl")
    launch = start(api)
    made = api.set_pod(NAMESPACE, waiting_pod("ContainerCreating"))
    words = f"pod {NAME}-chief-0 cannot start (FailedCreatePodSandBox: failed to set up"
    for second, (sandbox, port, end) in enumerate((("b" * 64, 41234, "qvggv"), ("c" * 64, 50001, "hlk97"))):
        message = f'failed to set up sandbox "{sandbox}" of {NAME}-chief-0-0-{end}: 10.0.0.2:{port}->10.0.0.1:443: no answer'
        api.add_event(made, "FailedCreatePodSandBox", message, at=f"2026-01-01T00:00:0{second}Z")
        wait_until(lambda: words in caplog.text)
        wait_until_seen(api)
    message = "AttachVolume.Attach failed for volume: no driver"
    api.add_event(made, "FailedAttachVolume", message)
    wait_until(lambda: f"pod {NAME}-chief-0 cannot start (FailedAttachVolume: {message})" in caplog.text)
    assert caplog.text.count(words) == 1
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_a_large_image_after_a_volume_that_was_late(api, jobs, monkeypatch):
    monkeypatch.setattr(pod_starts, "START_SECONDS", 0.0)
    monkeypatch.setattr(pod_starts, "EVENTS_SECONDS", 0.0)
    document = api.set_pod(NAMESPACE, waiting_pod("ContainerCreating"))
    said = []
    (made,) = jobs.list_pods()
    starts = pod_starts.PodStarts(jobs, (), said.append)
    api.add_event(document, "FailedMount", 'secret "s" not found', at="2026-01-01T00:00:00Z")
    starts.observe(made, is_needed=True)
    assert 'secret "s" not found' in said[0]
    api.add_event(document, "Pulling", "Pulling image", "Normal", at="2026-01-01T00:00:01Z")
    for _ in range(2):
        starts.observe(made, is_needed=True)

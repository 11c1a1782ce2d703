"""Tests the launcher with TFJobs against a fake of the Kubernetes API.

Each test lets something happen to a TFJob, and checks how the launcher reacts.
"""

import base64
import copy
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from kubernetes_api import ApiError, ApiServer
from launching import Launch
from running import wait_until

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.kubernetes import client as kubernetes_client
from tfx_distribute.components.launchers.kubernetes import launcher as kubernetes_launcher
from tfx_distribute.components.launchers.kubernetes import missing_pods, permissions, pod_log, pod_starts, refusals, watcher
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.kubernetes.job_kind import KEPT_SECONDS, Owner, Training
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.launchers.kubernetes.tfjob import TFJob
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution

NAME, NAMESPACE = "digits-1", "team"
LIST_EVENTS = ("", "events", "list")
NEEDED = {(each.group, each.resource, each.verb) for each in permissions.needed("tfjobs")} | {LIST_EVENTS}


@pytest.fixture
def api(tmp_path, monkeypatch):
    for module, name, value in (
        (watcher, "POLL_SECONDS", 0.1),
        (watcher, "FINAL_EXIT_SECONDS", 0.5),
        (retry, "RETRY_SECONDS", 0.1),
        (retry, "TIMEOUT_SECONDS", 8.0),
        (pod_starts, "START_SECONDS", 0.5),
        (missing_pods, "CONTROLLER_SECONDS", 3.0),
        (pod_starts, "EVENTS_SECONDS", 0.1),
        (kubernetes_client, "WEBHOOK_SECONDS", 0.5),
        (refusals, "FINAL_SECONDS", 1.0),
        (pod_log, "RETRY_SECONDS", 0.1),
    ):
        monkeypatch.setattr(module, name, value)
    # Allows only what `tfx-distribute manifests` prints.
    with ApiServer(allowed=NEEDED) as running:
        running.write_kubeconfig(tmp_path / "kubeconfig", namespace=NAMESPACE)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        yield running


def tfjob(command="exit 0", workers=1, owner=None):
    """Returns a TFJob whose pods run a shell command."""
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    settings = KubernetesSettings("digits", template, template)
    distribution = Distribution("multi_worker_mirrored", num_workers=workers) if workers > 1 else Distribution()
    manifest = TFJob().make_manifest(Training(NAME, "/job.json", distribution, {}, 3), settings, owner)
    for replica in manifest["spec"]["tfReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    return manifest


def follow(manifest=None, **options):
    return Launch(TFJob(), manifest or tfjob(), **options)


def condition(kind, **more):
    at = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "reason": f"TFJob{kind}", "lastTransitionTime": at, "lastUpdateTime": at, **more}


def status(*conditions, **replicas):
    return {"conditions": list(conditions), "replicaStatuses": replicas}


def exists(api):
    return NAME in [job["metadata"]["name"] for job in api.objects("tfjobs")]


def start(api, **arguments):
    launch = follow(**arguments)
    wait_until(lambda: exists(api))
    return launch


def wait_until_seen(api):
    """Waits until the running launcher has seen the current TFJob and its pods."""

    def count_requests():
        return sum(verb == "get" and path.endswith(f"/tfjobs/{NAME}") for verb, path in api.requests)

    before = count_requests()
    wait_until(lambda: count_requests() >= before + 2)  # it asks for the pods between two of them


def cut_before(request, api, seconds, monkeypatch):
    """Makes the cluster unreachable before the launcher's next request of a kind."""
    send = getattr(JobClient, request)
    is_cut = threading.Event()

    def cut_and_send(jobs):
        if not is_cut.is_set():
            api.unreachable(seconds)
            is_cut.set()
        return send(jobs)

    monkeypatch.setattr(JobClient, request, cut_and_send)
    assert is_cut.wait(20)


def pod(name="digits-1-chief-0", uid="1", exit_code=None, reason=None, replica="chief"):
    labels = {"training.kubeflow.org/job-name": NAME, "training.kubeflow.org/replica-type": replica}
    labels["training.kubeflow.org/replica-index"] = name.rpartition("-")[2]
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid,
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": []},
        "status": {"phase": "Running"},
    }
    if exit_code is not None:
        terminated = {"exitCode": exit_code, "reason": reason or "Error", "finishedAt": "2026-01-01T00:00:01Z"}
        container = {
            "name": "tensorflow",
            "ready": False,
            "restartCount": 0,
            "image": "i",
            "imageID": "",
            "state": {"terminated": terminated},
        }
        document["status"] = {"phase": "Failed", "containerStatuses": [container]}
    return document


def test_created_running_succeeded(api):
    launch = start(api, manifest=tfjob(owner=Owner("step", "a-uid")))
    (job,) = api.objects("tfjobs")
    assert job["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "a-uid"}]
    assert job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == KEPT_SECONDS
    for conditions in ([], [condition("Created")], [condition("Created"), condition("Running")]):
        api.set_status(NAMESPACE, NAME, status(*conditions, Chief={"active": 1}))
        time.sleep(0.3)
        assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Succeeded"), Chief={"succeeded": 1}))
    assert launch.wait() is None
    assert exists(api), "it stays for people to look at"


def test_suspended_waits(api):
    launch = start(api)
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Suspended")))
    time.sleep(0.5)
    assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Succeeded")))
    assert launch.wait() is None


def test_succeeded_though_another_replica_failed_meanwhile(api):
    launch = start(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded"), condition("Failed")))
    assert launch.wait() is None


def test_a_job_whose_pods_were_taken_away_is_created_again(api):
    """The operator gives up the whole job in this case."""
    launch = start(api)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_a_job_is_replaced_though_the_api_does_not_answer_at_first(api):
    launch = start(api)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.fail(503, verb="delete")
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def with_proxy(pod, state, phase):
    """Adds a sidecar in a state to a pod, and sets the phase that results from it."""
    proxy = {"name": "a-proxy", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": state}
    pod["status"]["containerStatuses"].append(proxy)
    pod["status"]["phase"] = phase
    return pod


@pytest.mark.parametrize(("exit_code", "is_error"), [(0, False), (143, True)])
def test_a_pod_that_a_sidecar_keeps_running(api, caplog, exit_code, is_error):
    """Neither controller sees that the training in it has ended."""
    launch = start(api)
    api.set_pod(NAMESPACE, with_proxy(pod(exit_code=exit_code), {"running": {}}, "Running"))
    api.set_status(NAMESPACE, NAME, status(condition("Running"), Chief={"active": 1}))
    error = launch.wait()
    assert isinstance(error, TrainingError) if is_error else error is None
    assert f"exit code {exit_code}, but its container a-proxy" in (str(error) if is_error else caplog.text)
    assert not exists(api)


def test_a_sidecar_that_fails_after_the_training(api):
    """The pod has failed, although there is a model."""
    launch = start(api)
    terminated = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:02Z"}
    api.set_pod(NAMESPACE, with_proxy(pod(exit_code=0), {"terminated": terminated}, "Failed"))
    api.set_status(NAMESPACE, NAME, status(condition("Running")))
    assert launch.wait() is None


def test_a_process_that_fails_after_the_chief_has_succeeded(api):
    """Whichever of their pods is listed first."""
    launch = start(api)
    failed = pod(name="digits-1-a-worker-0", uid="0", exit_code=1, replica="worker")
    api.set_pod(NAMESPACE, with_proxy(failed, {"running": {}}, "Running"))
    api.set_pod(NAMESPACE, with_proxy(pod(exit_code=0), {"running": {}}, "Running"))
    api.set_status(NAMESPACE, NAME, status(condition("Running")))
    assert launch.wait() is None


def test_deleted_by_somebody(api):
    launch = start(api)
    api.delete(NAMESPACE, NAME)
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert str(error) == f"TFJob {NAME} is gone: somebody has deleted it while it was training"


def test_api_server_gone_for_a_while(api):
    launch = start(api)
    api.unreachable(2.0)
    api.fail(503, times=3)
    time.sleep(0.3)
    assert launch.is_running
    time.sleep(2.5)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_api_server_that_refuses_everybody_for_a_while(api):
    """As one that starts again and has not read all accounts and roles."""
    launch = start(api)
    allowed = api.allowed
    for refuse_all in (lambda: setattr(api, "allowed", frozenset()), lambda: api.fail(401, times=6)):
        refuse_all()
        time.sleep(0.5)
        api.allowed = allowed
        assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_api_server_gone_for_good(api, monkeypatch):
    monkeypatch.setattr(retry, "TIMEOUT_SECONDS", 1.0)
    launch = start(api)
    api.unreachable(60)
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert str(error).startswith("the Kubernetes API server did not answer for 1 s; the last error: ")


def test_logs_continue_where_the_connection_was_lost(api, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    launch = start(api)
    api.set_pod(NAMESPACE, pod() | {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}})
    api.logs[(NAMESPACE, f"{NAME}-chief-0")] = tmp_path / "log"
    with (tmp_path / "log").open("w") as log:
        for number in range(1, 9):
            log.write(f"2026-01-01T00:00:0{number}.000000000Z line {number}\n")
            log.flush()
            wait_until(lambda number=number: f"chief: line {number}" in caplog.text)
            if number == 3:
                api.drop_watches()
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("chief: line")]
    assert lines == [f"chief: line {number}" for number in range(1, 9)]


def test_a_retried_step_finds_its_job_again(api):
    first = start(api)
    uid = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    second = follow()
    time.sleep(0.5)
    assert api.get(NAMESPACE, NAME)["metadata"]["uid"] == uid
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert (first.wait(), second.wait()) == (None, None)


def test_a_retried_step_owns_the_job(api):
    """Otherwise Kubernetes would delete it with the pod of the earlier attempt."""
    first = start(api, manifest=tfjob(owner=Owner("step", "a-uid")))
    before = api.get(NAMESPACE, NAME)
    second = follow(manifest=tfjob(owner=Owner("step-again", "another-uid")))
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "step-again", "uid": "another-uid"}]
    wait_until(lambda: api.get(NAMESPACE, NAME)["metadata"]["ownerReferences"] == owners)
    api.delete_owner("a-uid")
    job = api.get(NAMESPACE, NAME)
    assert (job["metadata"]["uid"], job["spec"]) == (before["metadata"]["uid"], before["spec"])
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert (first.wait(), second.wait()) == (None, None)
    api.delete_owner("another-uid")
    assert not exists(api)


def test_a_job_that_is_gone_before_a_retried_step_owns_it(api):
    first = start(api)
    api.fail(404, verb="patch")
    error = follow().wait()
    assert isinstance(error, TrainingError)
    assert str(error).startswith(f"TFJob {NAME} is gone")
    assert isinstance(first.wait(), TrainingError)


def succeed_before(api):
    """Leaves a TFJob of an earlier attempt that has succeeded, and returns its uid."""
    first = start(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert first.wait() is None
    return api.get(NAMESPACE, NAME)["metadata"]["uid"]


def test_a_job_of_an_earlier_attempt_that_succeeded_is_done(api, caplog):
    caplog.set_level("INFO", logger="absl")
    uid = succeed_before(api)
    assert follow().wait() is None
    assert api.get(NAMESPACE, NAME)["metadata"]["uid"] == uid
    assert f"TFJob {NAME} of an earlier attempt has succeeded" in caplog.text


def test_a_job_of_an_earlier_attempt_that_succeeded_is_rerun_on_request(api):
    uid = succeed_before(api)
    second = follow(rerun=True)
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != uid)
    assert second.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert second.wait() is None


def test_a_job_of_an_earlier_attempt_that_failed_is_created_again(api):
    first = start(api)
    api.set_pod(NAMESPACE, pod(exit_code=1))
    api.set_status(NAMESPACE, NAME, status(condition("Failed")))
    assert isinstance(first.wait(), TrainingError)
    uid = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    second = follow()
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != uid)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert second.wait() is None


@pytest.mark.parametrize("permission", sorted(NEEDED - {LIST_EVENTS}))
def test_not_allowed(api, permission):
    api.allowed = NEEDED - {permission}
    error = follow().wait()
    assert isinstance(error, ConfigurationError)
    assert str(error) == (
        "the service account of this step may not run a TFJob in namespace team: it may not "
        f"{permission[2]} {permission[1]}; apply what `tfx-distribute manifests` prints, or name another "
        "targets.kubeflow.service_account"
    )
    assert not api.objects("tfjobs")


def test_no_namespace(api):
    api.namespaces = {"default"}
    error = follow().wait()
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(f"the cluster has no namespace {NAMESPACE} (")


def test_an_operator_that_does_not_run(api):
    error = follow().wait()
    assert isinstance(error, TrainingError)
    assert str(error).startswith(
        f"TFJob {NAME} has no pods after 3 s, and no event says why; see whether the pods of Kubeflow's"
    )
    assert not exists(api)


def test_pods_that_a_gang_scheduler_holds_back(api, caplog):
    manifest = tfjob()
    manifest["spec"]["runPolicy"]["schedulingPolicy"] = {"minAvailable": 1}
    launch = start(api, manifest=manifest)
    wait_until(lambda: "has no pods after 3 s" in caplog.text)
    time.sleep(0.5)
    assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_a_webhook_of_an_operator_that_does_not_run(api, monkeypatch):
    def create(self, namespace, body, dry_run):
        raise ApiError(500, 'Internal error occurred: failed calling webhook "validator": no endpoints available')

    monkeypatch.setattr(ApiServer, "_create", create)
    error = follow().wait()
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(f"the cluster cannot check TFJob {NAME} (Internal error occurred: failed calling webhook")
    assert "see whether the pods of Kubeflow's Training Operator run" in str(error)


def test_an_old_operator_drops_fields(api, monkeypatch):
    """A cluster drops what its resource does not have, and does not say so."""
    put = ApiServer._create

    def create_without(self, namespace, body, dry_run):
        del body["spec"]["runPolicy"]["ttlSecondsAfterFinished"]
        return put(self, namespace, body, dry_run)

    monkeypatch.setattr(ApiServer, "_create", create_without)
    error = follow().wait()
    assert isinstance(error, ConfigurationError)
    assert str(error) == (
        "the TFJobs of this cluster have no spec.runPolicy.ttlSecondsAfterFinished; install Kubeflow's Training Operator 1.9"
    )
    assert not exists(api)


def test_no_training_operator(api):
    api.installed = False
    error = follow().wait()
    assert isinstance(error, ConfigurationError)
    assert "install Kubeflow's Training Operator 1.9" in str(error)


def test_refused_by_the_operator(api):
    manifest = tfjob()
    del manifest["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"][0]["image"]
    error = follow(manifest=manifest).wait()
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(f"the cluster refuses TFJob {NAME}: admission webhook")


def test_takes_too_long(api):
    launch = start(api, deadline_seconds=1)
    api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": "2026-01-01T00:00:00Z"})
    error = launch.wait()
    assert str(error) == f"TFJob {NAME} takes longer than active_deadline_seconds"
    assert not exists(api)


def test_time_counts_from_when_the_operator_starts_a_job(api):
    """Counts by our own clock: the cluster's may differ by hours."""
    launch = start(api, deadline_seconds=2)
    suspended = status(condition("Created"), condition("Suspended"))
    running = status(condition("Created"), condition("Running"))
    for queued in (status(condition("Created")), suspended):
        api.set_status(NAMESPACE, NAME, queued)
        time.sleep(1.1)
    api.set_status(NAMESPACE, NAME, running | {"startTime": "2026-01-01T00:00:00Z"})
    wait_until_seen(api)
    api.set_status(NAMESPACE, NAME, suspended | {"startTime": "2026-01-01T00:00:00Z"})
    time.sleep(2.1)
    api.set_status(NAMESPACE, NAME, running | {"startTime": "2026-01-01T00:00:02Z"})
    wait_until_seen(api)
    assert str(launch.wait()) == f"TFJob {NAME} takes longer than active_deadline_seconds"


@pytest.mark.parametrize("request_", ["get", "list_pods"])
def test_time_of_a_job_does_not_count_for_its_replacement(api, request_, monkeypatch):
    launch = start(api, deadline_seconds=4)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": "2026-01-01T00:00:00Z"})
    wait_until_seen(api)
    cut_before(request_, api, 4.5, monkeypatch)  # so that the launcher sees the end first, after the deadline
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed")) | {"startTime": "2026-01-01T00:00:00Z"})
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    wait_until_seen(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_restarts_before_a_suspension_count(api):
    """Nobody has to see the suspension: the time of the start has changed."""
    launch = start(api, max_restarts=1)

    def start_at(when):
        api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": f"2026-01-01T00:00:0{when}Z"})
        wait_until_seen(api)

    def replace_pod():
        api.delete(NAMESPACE, f"{NAME}-chief-0", "pods")
        api.set_pod(NAMESPACE, pod())

    start_at(0)
    api.set_pod(NAMESPACE, pod())
    wait_until_seen(api)
    replace_pod()
    wait_until_seen(api)
    start_at(5)
    replace_pod()
    wait_until_seen(api)
    replace_pod()
    assert str(launch.wait()).endswith("All 1 restarts (max_restarts) are used up")


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


def test_a_lasting_refusal_while_it_follows_removes_the_job(api, monkeypatch):
    monkeypatch.setattr(retry, "TIMEOUT_SECONDS", 1.0)
    launch = start(api)
    api.allowed = NEEDED - {("", "pods", "list")}
    error = launch.wait()
    assert isinstance(error, ConfigurationError)
    assert "may not run a TFJob in namespace" in str(error)
    assert not exists(api), "nobody follows it any more"


def waiting_pod(reason, message=None):
    """Returns a pod whose container waits on a machine."""
    document = pod()
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


def test_a_large_image_after_a_volume_that_was_late(api, monkeypatch):
    monkeypatch.setattr(pod_starts, "START_SECONDS", 2.0)
    launch = start(api)
    made = api.set_pod(NAMESPACE, waiting_pod("ContainerCreating"))
    api.add_event(made, "FailedMount", "not yet")
    time.sleep(1.1)  # times of events are seconds
    api.add_event(made, "Pulling", "Pulling image", "Normal")
    api.set_status(NAMESPACE, NAME, status(condition("Created")))
    time.sleep(2.0)
    assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


# Pods that are refused while others run: the operator looks at none of them then.


def refuse(api, name, message="exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"):
    job = api.get(NAMESPACE, NAME)
    api.add_event(job, "FailedCreatePod", f'Error creating: pods "{NAME}-{name}" is forbidden: {message}')


def test_a_chief_that_succeeds_while_pods_are_refused(api):
    launch = start(api, manifest=tfjob(workers=2))
    api.set_pod(NAMESPACE, pod() | {"status": {"phase": "Succeeded"}})
    refuse(api, "worker-0")
    assert launch.wait() is None


def test_an_error_of_a_pod_while_others_are_refused(api):
    launch = start(api, manifest=tfjob(workers=2))
    api.set_pod(NAMESPACE, pod(exit_code=3))
    refuse(api, "worker-0")
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert "ended with exit code 3" in str(error)
    assert not exists(api)


def test_events_that_cannot_be_read_end_no_training(api, caplog):
    launch = start(api, manifest=tfjob(workers=2))
    api.allowed = NEEDED - {LIST_EVENTS}
    wait_until(lambda: "may not list events" in caplog.text)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_a_quota_of_tfjobs_is_no_matter_of_permissions(api):
    api.fail(403, verb="create")
    error = follow().wait()
    assert isinstance(error, ConfigurationError)
    assert "may not run a TFJob" not in str(error)


@pytest.mark.parametrize("outer", ["nullcontext", "terminable"])
def test_a_terminated_step_removes_the_job(api, tmp_path, outer):
    """Works within another handler of SIGTERM too."""
    (tmp_path / "job.json").write_text(json.dumps(tfjob()))
    code = (
        "import json, sys; from contextlib import nullcontext; "
        "from tfx_distribute.components.launchers.kubernetes import launcher; "
        "from tfx_distribute.components.launchers.sigterm import terminable\n"
        f"with {outer}():\n"
        "    launcher.launch(launcher.find_kind('tfjob'), json.load(open(sys.argv[1])), launcher.Limits(3))"
    )
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
    step = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "job.json")], env=environment)
    try:
        wait_until(lambda: exists(api), seconds=60)
        step.send_signal(signal.SIGTERM)
        assert step.wait(20) != 0
    finally:
        step.kill()
    assert not exists(api)


# The service account of the pods.


def token(claims):
    """Returns a token like a pod's, with a signature that nobody checks."""
    parts = [json.dumps({"alg": "RS256"}), json.dumps(claims), "signature"]
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


@pytest.fixture
def account(tmp_path, monkeypatch):
    """Returns a function that writes the token of this step."""
    file = tmp_path / "token"
    monkeypatch.setattr(kubernetes_launcher, "_TOKEN_FILE", file)
    return file.write_text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # Of three lengths, which lack no, two or one character of padding.
        *((token({"sub": f"system:serviceaccount:team:{name}"}), name) for name in ("runner", "a-runner", "my-runner")),
        (token({"sub": "system:serviceaccount:team:pipeline.runner", "aud": ["https://müller?>"]}), "pipeline.runner"),
        (token({"sub": "ann@example.com"}), None),
        (token({"aud": "somebody"}), None),
        ("opaque", None),
        ("a.b.c", None),
        ("", None),
    ],
)
def test_service_account_of_the_step(account, text, name):
    assert kubernetes_launcher.service_account() is None, "there is no token"
    account(text)
    assert kubernetes_launcher.service_account() == name


def test_pods_without_a_service_account_get_that_of_the_step(api, account):
    account(token({"sub": "system:serviceaccount:team:pipeline-runner"}))
    manifest = tfjob(workers=2)
    manifest["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] = "trainer"
    before = copy.deepcopy(manifest)
    launch = start(api, manifest=manifest)
    (job,) = api.objects("tfjobs")
    names = {
        kind: replica["template"]["spec"]["serviceAccountName"] for kind, replica in job["spec"]["tfReplicaSpecs"].items()
    }
    assert names == {"Chief": "pipeline-runner", "Worker": "trainer"}
    assert manifest == before
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_pods_run_as_the_user_of_the_step():
    manifest = tfjob(workers=2)
    contexts = {"Chief": {"runAsNonRoot": True, "fsGroup": 5}, "Worker": {"runAsUser": 7}}
    for kind, context in contexts.items():
        manifest["spec"]["tfReplicaSpecs"][kind]["template"]["spec"]["securityContext"] = context
    changed = kubernetes_launcher.as_step(TFJob(), manifest, "runner", 1000, 2000)
    pods = {kind: replica["template"]["spec"] for kind, replica in changed["spec"]["tfReplicaSpecs"].items()}
    assert pods["Chief"]["securityContext"] == {"runAsUser": 1000, "runAsGroup": 2000, "runAsNonRoot": True, "fsGroup": 5}
    assert pods["Worker"]["securityContext"] == {"runAsUser": 7}, "a template's own user stays"


def test_pods_of_a_step_that_is_root():
    manifest = tfjob()
    pod = manifest["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
    pod["securityContext"] = {"runAsNonRoot": True}
    with pytest.raises(
        ConfigurationError, match=r"this step runs as root, .* give the image a USER .*run_as_non_root: false"
    ):
        kubernetes_launcher.as_step(TFJob(), manifest, "runner", 0, 0)
    pod["securityContext"] = {"runAsNonRoot": False}
    changed = kubernetes_launcher.as_step(TFJob(), manifest, "runner", 0, 0)
    assert changed["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["securityContext"] == {"runAsNonRoot": False}


def test_pods_get_no_service_account_outside_a_cluster(api, account):
    launch = start(api)
    (job,) = api.objects("tfjobs")
    assert "serviceAccountName" not in job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None

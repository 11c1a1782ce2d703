"""Tests how a step creates, follows and removes a TFJob in a fake cluster.

What all launchers have in common is in test_contract.
"""

import base64
import json
import time
from dataclasses import replace

import pytest
from kubernetes_api import ApiServer
from running import wait_until
from tfjobs import (
    ALLOWED,
    NAME,
    NAMESPACE,
    SETTINGS,
    condition,
    exists,
    follow,
    make_launcher,
    pod,
    start,
    status,
    step,
    tfjob,
)

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.errors import NoAnswerError
from tfx_distribute.components.launchers.kubernetes import launcher as kubernetes_launcher
from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution


@pytest.fixture
def api(tmp_path, monkeypatch):
    """Returns a fake that allows only what docs/trainer-role.yaml has."""
    monkeypatch.setattr(KubernetesLauncher, "poll_seconds", 0.1)
    for name, seconds in (("NEWS", 0.1), ("RETRY", 0.1), ("ANSWER", 8.0), ("STOP", 2.0)):
        monkeypatch.setattr(timeouts, f"{name}_SECONDS", seconds)
    with ApiServer(allowed=ALLOWED) as running:
        running.write_kubeconfig(tmp_path / "kubeconfig", namespace=NAMESPACE)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        yield running


def succeed(api):
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))


def uid_of(api):
    return api.get(NAMESPACE, NAME)["metadata"]["uid"]


def warn(api, reason, message, about=None):
    api.add_event(about or api.get(NAMESPACE, NAME), reason, message)


def test_a_retried_step_owns_the_job(api):
    """Otherwise Kubernetes would delete it with the pod of the earlier attempt.

    That one may still run: its machine does not answer, so that Kubeflow starts the
    step on another.
    """
    first = start(api, manifest=tfjob(owner=step("step", "a-uid")))
    uid = uid_of(api)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "a-uid"}
    assert api.get(NAMESPACE, NAME)["metadata"]["ownerReferences"] == [owner]
    second = follow(manifest=tfjob(owner=step("step-again", "another-uid")))
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "step-again", "uid": "another-uid"}]
    wait_until(lambda: api.get(NAMESPACE, NAME)["metadata"]["ownerReferences"] == owners)
    assert str(first.wait()) == f"another attempt of this step follows TFJob {NAME} by now"
    api.delete_owner("a-uid")
    assert uid_of(api) == uid, "the first attempt has not deleted it"
    succeed(api)
    assert second.wait() is None
    api.delete_owner("another-uid")
    assert not exists(api)


def test_an_attempt_that_is_stopped_leaves_the_job_of_another(api):
    """Even if it has not looked since the other took the job over."""
    launcher = make_launcher()
    assert launcher.start(tfjob(owner=step("step", "a-uid")), has_result=False)
    second = follow(manifest=tfjob(owner=step("step-again", "another-uid")))
    wait_until(lambda: api.get(NAMESPACE, NAME)["metadata"]["ownerReferences"][0]["name"] == "step-again")
    launcher.stop(has_time=False)
    assert exists(api)
    succeed(api)
    assert second.wait() is None


def test_a_job_of_an_earlier_attempt_that_has_left_the_result(api):
    """It stays, and nothing is trained again if it is gone with the pod of the step."""
    first = start(api)
    succeed(api)
    assert first.wait() is None
    uid = uid_of(api)
    assert follow(has_result=True).wait() is None
    assert uid_of(api) == uid
    api.delete(NAMESPACE, NAME)
    assert follow(has_result=True).wait() is None
    assert not exists(api)


def test_the_pod_that_failed_for_good_is_named_with_its_last_lines(api, tmp_path):
    launch = start(api)
    (tmp_path / "log").write_text("2026-01-01T00:00:00.000000000Z loss is nan\n")
    api.logs[(NAMESPACE, f"{NAME}-chief-0")] = tmp_path / "log"
    failed = pod(exit_code=1)
    failed["spec"] = {"containers": [{"name": "tensorflow"}]}
    api.set_pod(NAMESPACE, failed)
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="1 Chief replica(s) failed.")))
    assert str(launch.wait()) == (
        f"TFJob {NAME} failed: 1 Chief replica(s) failed.\npod {NAME}-chief-0 ended with exit code 1 (Error)\n  loss is nan"
    )
    assert exists(api), "it stays for people to look at"


def test_a_pod_that_fails_after_the_training(api):
    """There is a model, whatever the phase of the job."""
    launch = start(api)
    api.set_pod(NAMESPACE, pod(exit_code=0))
    api.set_status(NAMESPACE, NAME, status(condition("Failed")))
    assert launch.wait() is None


# What the cluster says.


def test_each_warning_is_said_once(api, caplog):
    launch = start(api)
    waiting = pod(name=f"{NAME}-chief-0") | {"status": {"phase": "Pending"}}
    for name in (f"{NAME}-chief-0", f"{NAME}-worker-0"):
        about = api.set_pod(NAMESPACE, {**waiting, "metadata": {**waiting["metadata"], "name": name}})
        warn(api, "FailedScheduling", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", about)
    other = pod(name="of-another-job")
    other["metadata"]["labels"] = {}
    other = api.set_pod(NAMESPACE, other)
    warn(api, "FailedMount", "another pod's own", other)
    api.add_event(api.get(NAMESPACE, NAME), "FailedCreatePod", "must specify limits", at="2020-01-01T00:00:00Z")
    words = "FailedScheduling: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    wait_until(lambda: words in caplog.text)
    time.sleep(0.5)
    assert caplog.text.count(words) == 1
    assert "another pod's own" not in caplog.text
    assert launch.is_running, "a warning from before the job does not count"
    succeed(api)
    assert launch.wait() is None


def test_what_no_waiting_ends_is_final_at_once(api):
    launch = start(api)
    warn(api, "FailedCreatePod", 'Error creating: pods "x" is forbidden: serviceaccount "x" not found')
    error = launch.wait(20)
    assert isinstance(error, TrainingError)
    assert 'serviceaccount "x" not found; create it in the namespace' in str(error)
    assert not exists(api)


def test_a_suspended_job_in_no_queue(api, caplog):
    manifest = tfjob()
    manifest["spec"]["runPolicy"]["suspend"] = True
    launch = start(api, manifest=manifest, start_seconds=0.5)
    wait_until(lambda: "is suspended, and in no queue" in caplog.text)
    time.sleep(0.7)
    assert launch.is_running, "the wait in a queue does not count"
    succeed(api)
    assert launch.wait() is None


def test_a_kind_that_the_queue_does_not_manage(api):
    """It would run past the queue."""
    queued = KubernetesLauncher(replace(SETTINGS, queue="team"))
    manifest = queued.request(Training(NAME, "/job.json", Distribution(), {}))
    error = follow(manifest=manifest).wait()
    assert isinstance(error, ConfigurationError)
    assert "targets.kubeflow.queue: TFJobs of this cluster do not wait in queues" in str(error)
    assert not exists(api)


def test_trains_without_the_permission_to_read_events(api, caplog):
    api.allowed = ALLOWED - {("", "events", "list")}
    launch = start(api)
    wait_until(lambda: "this step may not list events in namespace team" in caplog.text)
    succeed(api)
    assert launch.wait() is None


# An API server that refuses, or does not answer.


WEBHOOK = 'admission webhook "validator.tfjob.training-operator.kubeflow.org" denied the request: no image'


@pytest.mark.parametrize(
    ("allowed", "installed", "denied", "words"),
    [
        (ALLOWED - {("kubeflow.org", "tfjobs", "create")}, True, "", "this step may not run a TFJob in namespace team ("),
        (ALLOWED - {("kubeflow.org", "tfjobs", "create")}, True, "", "apply docs/trainer-role.yaml"),
        (ALLOWED, False, "", "install Kubeflow's Training Operator 1.9"),
        (ALLOWED, True, WEBHOOK, f"the cluster refuses TFJob {NAME}: {WEBHOOK}"),
    ],
)
def test_refusals_name_the_remedy(api, allowed, installed, denied, words):
    api.allowed, api.installed = allowed, installed
    if denied:
        api.fail(403, verb="create", message=denied)
    error = follow().wait()
    assert isinstance(error, ConfigurationError)
    assert words in str(error)


def test_deleted_by_somebody(api):
    launch = start(api)
    api.delete(NAMESPACE, NAME)
    assert str(launch.wait()) == f"TFJob {NAME} is gone: somebody has deleted it while it was training"


def test_api_server_gone_for_a_while(api):
    launch = start(api)
    api.set_pod(NAMESPACE, pod())
    api.unreachable(2.0)
    for code in (503, 403, 404):  # as one that starts again
        api.fail(code)
    time.sleep(2.5)
    assert launch.is_running
    succeed(api)
    assert launch.wait() is None


def test_api_server_gone_for_good(api, monkeypatch):
    monkeypatch.setattr(timeouts, "ANSWER_SECONDS", 1.0)
    launch = start(api)
    api.unreachable(1000.0)
    error = launch.wait()
    assert isinstance(error, NoAnswerError)
    assert str(error).startswith("the Kubernetes API server did not answer for 1 s; the last error: ")


def test_a_job_that_cannot_be_deleted(api, caplog):
    launch = start(api, deadline_seconds=0.5)
    api.fail(503, times=1000, verb="delete")
    assert "active_deadline_seconds" in str(launch.wait())
    assert f"cannot delete TFJob {NAME}, whose pods may run for another half an hour" in caplog.text


def test_each_line_of_the_chief_is_passed_on_once(api, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    launch = start(api)
    api.set_pod(NAMESPACE, pod() | {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}})
    api.logs[(NAMESPACE, f"{NAME}-chief-0")] = tmp_path / "log"
    with (tmp_path / "log").open("w") as log:
        for number in range(1, 9):
            log.write(f"2026-01-01T00:00:0{number}.000000000Z line {number}\n")
            log.flush()
            wait_until(lambda number=number: f"chief: line {number}" in caplog.text)
    succeed(api)
    assert launch.wait() is None
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("chief: line")]
    assert lines == [f"chief: line {number}" for number in range(1, 9)]


# The step whose rights the pods have.


def token(claims):
    """Returns a token like a pod's, with a signature that nobody checks."""
    parts = [json.dumps({"alg": "RS256"}), json.dumps(claims), "signature"]
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


@pytest.fixture
def account(tmp_path, monkeypatch):
    """Returns a function that writes the token of this step."""
    monkeypatch.setattr(kubernetes_launcher, "_ACCOUNT_FOLDER", tmp_path)
    return (tmp_path / "token").write_text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # Of three lengths, which lack no, two or one character of padding.
        *((token({"sub": f"system:serviceaccount:team:{name}"}), name) for name in ("runner", "a-runner", "my-runner")),
        (token({"sub": "ann@example.com"}), ""),
        (token({"aud": "somebody"}), ""),
        ("opaque", ""),
    ],
)
def test_service_account_of_the_step(account, text, name):
    assert kubernetes_launcher._find_account() == "", "there is no token"
    account(text)
    assert kubernetes_launcher._find_account() == name


def pod_spec(owner, **spec):
    template = {"metadata": {}, "spec": {"containers": [{"name": "tensorflow", "image": "i"}], **spec}}
    launcher = KubernetesLauncher(replace(SETTINGS, worker=template))
    manifest = launcher._kinds[0].make_manifest(Training(NAME, "/job.json", Distribution(), {}), launcher.settings, owner)
    return manifest["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]


def test_pods_have_the_rights_of_the_step():
    spec = pod_spec(step("s", "u"), securityContext={"runAsNonRoot": True, "fsGroup": 5})
    assert spec["serviceAccountName"] == "runner"
    assert spec["securityContext"] == {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True, "fsGroup": 5}
    own = pod_spec(step("s", "u"), serviceAccountName="trainer", securityContext={"runAsUser": 7})
    assert own["serviceAccountName"] == "trainer"
    assert own["securityContext"] == {"runAsUser": 7}, "a template's own user stays"
    assert "serviceAccountName" not in pod_spec(None), "outside of a cluster"


def test_pods_of_a_step_that_is_root():
    root = replace(step("s", "u"), user=0)
    assert pod_spec(root, securityContext={"runAsNonRoot": True})["securityContext"] == {"runAsNonRoot": True}


def test_preferred_kinds():
    def kinds(**settings):
        return [kind.title for kind in KubernetesLauncher(replace(SETTINGS, **settings))._kinds]

    assert kinds(training="auto") == ["JobSet", "TFJob"]
    assert kinds(training="tfjob") == ["TFJob"]
    assert kinds(training="jobset") == ["JobSet"]

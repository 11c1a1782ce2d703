"""Tests how a step creates, finds again and removes a TFJob, in a fake cluster."""

import base64
import copy
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from kubernetes_api import ApiError, ApiServer
from running import wait_until
from tfjobs import (
    LIST_EVENTS,
    NAME,
    NAMESPACE,
    NEEDED,
    condition,
    exists,
    follow,
    pod,
    start,
    status,
    tfjob,
)

from tfx_distribute.components.launchers.errors import NotFollowedError
from tfx_distribute.components.launchers.kubernetes import connection
from tfx_distribute.components.launchers.kubernetes import launcher as kubernetes_launcher
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.kubernetes.job_kind import Owner
from tfx_distribute.components.launchers.kubernetes.tfjob import TFJob
from tfx_distribute.components.launchers.sigterm import TerminatedError
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError


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
    assert isinstance(first.wait(), NotFollowedError)
    assert second.wait() is None
    api.delete_owner("another-uid")
    assert not exists(api)


def test_an_attempt_that_hangs_does_not_delete_the_job_of_another(api):
    """Its machine does not answer, so that Kubeflow starts the step on another."""
    first = start(api, manifest=tfjob(owner=Owner("step", "a-uid")))
    second = follow(manifest=tfjob(owner=Owner("step-again", "another-uid")))
    error = first.wait()
    assert isinstance(error, NotFollowedError)
    assert str(error) == f"another attempt of this step follows TFJob {NAME} by now"
    assert exists(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert second.wait() is None


def test_a_job_that_was_created_again_meanwhile_is_not_deleted(api):
    manifest = tfjob()
    connection.load_config()
    jobs = JobClient(TFJob(), NAME, NAMESPACE)
    jobs.create(copy.deepcopy(manifest))

    def is_own(_):
        api.delete(NAMESPACE, NAME)
        jobs.create(copy.deepcopy(manifest))
        return True

    jobs.delete_if(is_own, timeout_seconds=0)
    assert exists(api)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_job_is_removed_though_the_api_does_not_answer_at_first(api, code):
    launch = start(api, deadline_seconds=1)
    api.fail(code, times=2, verb="delete")
    api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": "2026-01-01T00:00:00Z"})
    assert str(launch.wait()).endswith("takes longer than active_deadline_seconds")
    assert not exists(api)


def test_a_job_that_cannot_be_deleted(api, caplog):
    launch = start(api, deadline_seconds=1)
    api.fail(503, times=1000, verb="delete")
    api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": "2026-01-01T00:00:00Z"})
    assert str(launch.wait()).endswith("takes longer than active_deadline_seconds")
    assert f"cannot delete TFJob {NAME}, whose pods may run for another half an hour" in caplog.text


def test_a_terminated_step_sends_one_request(api, monkeypatch):
    """It has about a second."""
    launch = start(api)
    api.fail(503, times=1000, verb="delete")

    def terminate(jobs):
        raise TerminatedError

    monkeypatch.setattr(JobClient, "list_pods", terminate)
    assert isinstance(launch.wait(), TerminatedError)
    assert [verb for verb, _ in api.requests].count("delete") == 1


def test_a_job_that_is_gone_before_a_retried_step_owns_it(api, monkeypatch):
    first = start(api)
    set_owners = JobClient.set_owners

    def delete_before(jobs, owners):
        api.delete(NAMESPACE, NAME)
        set_owners(jobs, owners)

    monkeypatch.setattr(JobClient, "set_owners", delete_before)
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


def test_a_job_of_an_earlier_attempt_that_has_left_the_result_stays(api):
    uid = succeed_before(api)
    assert follow(has_result=True).wait() is None
    assert api.get(NAMESPACE, NAME)["metadata"]["uid"] == uid


def test_nothing_is_trained_again_if_only_the_job_is_gone(api):
    """Kubernetes deletes it with the pod of the step, for which "Retry run" asks."""
    assert follow(has_result=True).wait() is None
    assert not exists(api)


def test_processes_that_still_run_after_the_result_are_waited_for(api):
    first = start(api)
    second = follow(has_result=True)
    time.sleep(0.5)
    assert second.is_running, "an evaluator may still write"
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert (first.wait(), second.wait()) == (None, None)


def test_a_job_of_an_earlier_attempt_that_has_left_no_result_is_created_again(api):
    uid = succeed_before(api)
    second = follow()
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
    api.remove(NAMESPACE, f"{NAME}-chief-0")
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

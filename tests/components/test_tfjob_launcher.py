"""The TFJob launcher against a stand-in for the Kubernetes API: what can happen to a TFJob, and what comes of it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from kubernetes_api import ApiServer
from running import wait_until
from training_operator import TrainingOperator

from tfx_distribute.components.launchers import pod_log, tfjob_launcher, tfjob_requests
from tfx_distribute.components.launchers.tfjob import KEPT_SECONDS, Owner, TFJobSettings, manifest
from tfx_distribute.pipelines.rbac import RULES
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job import Distribution

NAME, NAMESPACE = "digits-1", "team"
NEEDED = {
    (group, resource, verb)
    for rule in RULES
    for group in rule["apiGroups"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
}


@pytest.fixture
def api(tmp_path, monkeypatch):
    for module, name, value in (
        (tfjob_launcher, "POLL_SECONDS", 0.1),
        (tfjob_requests, "POLL_SECONDS", 0.1),
        (tfjob_requests, "PATIENCE_SECONDS", 8.0),
        (tfjob_launcher, "START_SECONDS", 0.5),
        (pod_log, "AGAIN_SECONDS", 0.1),
    ):
        monkeypatch.setattr(module, name, value)
    # No more is allowed than what `tfx-distribute manifests` prints.
    with ApiServer(allowed=NEEDED) as running:
        running.write_kubeconfig(tmp_path / "kubeconfig", namespace=NAMESPACE)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        yield running


def tfjob(command="exit 0", workers=1, owner=None):
    """A TFJob whose pods run a shell command."""
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    settings = TFJobSettings("digits", template, template)
    distribution = Distribution("multi_worker_mirrored", num_workers=workers) if workers > 1 else Distribution()
    made = manifest(NAME, "/job.json", distribution, 2, settings, owner)
    for replica in made["spec"]["tfReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    return made


class Following:
    """The launcher in a thread of its own, and how it ended."""

    def __init__(self, max_restarts=3, deadline_seconds=None, made=None):
        self.error = None
        self._thread = threading.Thread(
            target=self._run, args=(made or tfjob(), max_restarts, deadline_seconds), daemon=True
        )
        self._thread.start()

    def _run(self, made, max_restarts, deadline_seconds):
        try:
            tfjob_launcher.run(made, max_restarts, deadline_seconds)
        except BaseException as error:
            self.error = error

    @property
    def goes_on(self):
        return self._thread.is_alive()

    def ended(self):
        self._thread.join(20)
        assert not self.goes_on, "it follows without end"
        return self.error


def condition(kind, **more):
    at = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "reason": f"TFJob{kind}", "lastTransitionTime": at, "lastUpdateTime": at, **more}


def status(*conditions, **replicas):
    return {"conditions": list(conditions), "replicaStatuses": replicas}


def exists(api):
    return NAME in [found["metadata"]["name"] for found in api.objects("tfjobs")]


def started(api, **arguments):
    following = Following(**arguments)
    wait_until(lambda: exists(api))
    return following


def pod(name="digits-1-chief-0", uid="1", exit_code=None, reason=None, replica="chief"):
    labels = {"training.kubeflow.org/job-name": NAME, "training.kubeflow.org/replica-type": replica}
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
        own = {
            "name": "tensorflow",
            "ready": False,
            "restartCount": 0,
            "image": "i",
            "imageID": "",
            "state": {"terminated": terminated},
        }
        document["status"] = {"phase": "Failed", "containerStatuses": [own]}
    return document


def test_created_running_succeeded(api):
    following = started(api, made=tfjob(owner=Owner("step", "a-uid")))
    (job,) = api.objects("tfjobs")
    assert job["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "a-uid"}]
    assert job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == KEPT_SECONDS
    for conditions in ([], [condition("Created")], [condition("Created"), condition("Running")]):
        api.set_status(NAMESPACE, NAME, status(*conditions, Chief={"active": 1}))
        time.sleep(0.3)
        assert following.goes_on
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Succeeded"), Chief={"succeeded": 1}))
    assert following.ended() is None
    assert exists(api), "it stays for people to look at"


def test_suspended_waits(api):
    following = started(api)
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Suspended")))
    time.sleep(0.5)
    assert following.goes_on
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Succeeded")))
    assert following.ended() is None


def test_succeeded_though_another_replica_failed_meanwhile(api):
    following = started(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded"), condition("Failed")))
    assert following.ended() is None


def test_failure_names_the_pod_and_what_it_said_last(api, tmp_path):
    with TrainingOperator(api, tmp_path / "pods"):
        error = Following(made=tfjob("echo loss is nan; exit 3")).ended()
    assert isinstance(error, TrainingError)
    lines = str(error).splitlines()
    assert lines[0].startswith(f"TFJob {NAME} failed: ")
    assert lines[1:] == [f"pod {NAME}-chief-0 ended with exit code 3 (Error)", "  loss is nan"]
    assert exists(api), "it stays for people to look at"


def test_restarts_until_it_succeeds(api, tmp_path):
    tries = f"echo try >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3 || exit 138"
    with TrainingOperator(api, tmp_path / "pods"):
        assert Following(made=tfjob(tries), max_restarts=2).ended() is None
    assert (tmp_path / "tries").read_text() == "try\n" * 3


def test_restarts_are_used_up(api, tmp_path):
    with TrainingOperator(api, tmp_path / "pods"):
        error = Following(made=tfjob("echo lost worker 0; sleep 0.5; exit 138"), max_restarts=1).ended()
        wait_until(lambda: not exists(api))
    assert isinstance(error, TrainingError)
    assert str(error).endswith("All 1 restarts (max_restarts) are used up")
    assert "  lost worker 0\n" in str(error)


def test_pods_that_are_taken_away_are_another_try(api):
    """For which the operator gives up the whole job."""
    following = started(api)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert following.ended() is None


def test_deleted_by_somebody(api):
    following = started(api)
    api.delete(NAMESPACE, NAME)
    error = following.ended()
    assert isinstance(error, TrainingError)
    assert str(error) == f"TFJob {NAME} is gone: somebody has deleted it while it was training"


def test_api_server_gone_for_a_while(api):
    following = started(api)
    api.unreachable(2.0)
    api.fail(503, times=3)
    time.sleep(0.3)
    assert following.goes_on
    time.sleep(2.5)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert following.ended() is None


def test_api_server_gone_for_good(api, monkeypatch):
    monkeypatch.setattr(tfjob_requests, "PATIENCE_SECONDS", 1.0)
    following = started(api)
    api.unreachable(60)
    error = following.ended()
    assert isinstance(error, TrainingError)
    assert str(error).startswith("the Kubernetes API server did not answer for 1 s; the last error: ")


def test_logs_go_on_where_the_connection_was_lost(api, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    words = "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.3; done"
    with TrainingOperator(api, tmp_path / "pods"):
        following = Following(made=tfjob(words))
        wait_until(lambda: "line 2" in caplog.text)
        api.drop_watches()
        assert following.ended() is None
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("chief: line")]
    assert told == [f"chief: line {number}" for number in range(1, 9)]


def test_a_retried_step_finds_its_job_again(api):
    first = started(api)
    uid = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    second = Following()
    time.sleep(0.5)
    assert api.get(NAMESPACE, NAME)["metadata"]["uid"] == uid
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert (first.ended(), second.ended()) == (None, None)


def test_a_job_of_an_earlier_try_that_failed_is_made_anew(api):
    first = started(api)
    api.set_pod(NAMESPACE, pod(exit_code=1))
    api.set_status(NAMESPACE, NAME, status(condition("Failed")))
    assert isinstance(first.ended(), TrainingError)
    uid = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    second = Following()
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != uid)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert second.ended() is None


def test_not_allowed(api):
    api.allowed = NEEDED - {("kubeflow.org", "tfjobs", "create")}
    error = Following().ended()
    assert isinstance(error, ConfigurationError)
    assert "may not run a TFJob in namespace team" in str(error)
    assert "`tfx-distribute manifests`" in str(error)


def test_no_training_operator(api):
    api.installed = False
    error = Following().ended()
    assert isinstance(error, ConfigurationError)
    assert "install Kubeflow's Training Operator 1.9" in str(error)


def test_refused_by_the_operator(api):
    made = tfjob()
    del made["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"][0]["image"]
    error = Following(made=made).ended()
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(f"the cluster refuses TFJob {NAME}: admission webhook")


def test_takes_too_long(api):
    following = started(api, deadline_seconds=1)
    api.set_status(NAMESPACE, NAME, status(condition("Running")))
    error = following.ended()
    assert str(error) == f"TFJob {NAME} takes longer than active_deadline_seconds"
    assert not exists(api)


def test_what_a_pod_waits_for_is_told_once(api, caplog):
    caplog.set_level("INFO", logger="absl")
    following = started(api)
    document = pod()
    message = "0/3 nodes have nvidia.com/gpu"
    unscheduled = condition("PodScheduled", reason="Unschedulable", message=message) | {"status": "False"}
    document["status"] = {"phase": "Pending", "conditions": [unscheduled]}
    api.set_pod(NAMESPACE, document)
    told = f"pod {NAME}-chief-0 waits for a node (Unschedulable: {message})"
    wait_until(lambda: told in caplog.text)
    time.sleep(0.5)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert following.ended() is None
    assert [record.getMessage() for record in caplog.records].count(told) == 1


def test_a_refusal_while_it_follows_removes_the_job(api):
    following = started(api)
    api.allowed = NEEDED - {("", "pods", "list")}
    assert isinstance(following.ended(), ConfigurationError)
    assert not exists(api), "nobody would look after it"


def test_an_image_that_cannot_be_pulled(api):
    following = started(api)
    document = pod()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    own = {"name": "tensorflow", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": waiting}
    document["status"] = {"phase": "Pending", "containerStatuses": [own]}
    api.set_pod(NAMESPACE, document)
    error = following.ended()
    assert isinstance(error, TrainingError)
    assert "cannot start (ImagePullBackOff: no such image)" in str(error)
    assert not exists(api)


def test_a_step_that_is_told_to_end_removes_the_job(api, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(tfjob()))
    code = (
        "import json, sys; from tfx_distribute.components.launchers import tfjob_launcher; "
        "tfjob_launcher.run(json.load(open(sys.argv[1])), 3)"
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

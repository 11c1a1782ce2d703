"""The TFJob launcher against a stand-in for the Kubernetes API: what can happen to a TFJob, and what comes of it."""

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
from kubernetes_api import ApiServer
from running import wait_until
from training_operator import TrainingOperator

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.tfjob import client as tfjob_client
from tfx_distribute.components.launchers.tfjob import launcher as tfjob_launcher
from tfx_distribute.components.launchers.tfjob import pod_log
from tfx_distribute.components.launchers.tfjob.manifest import KEPT_SECONDS, Owner, TFJobSettings, manifest
from tfx_distribute.pipelines.runners.kubeflow.rbac import RULES
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution

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
        (tfjob_client, "POLL_SECONDS", 0.1),
        (retry, "AGAIN_SECONDS", 0.1),
        (retry, "PATIENCE_SECONDS", 8.0),
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
    made = manifest(NAME, "/job.json", distribution, {}, settings, owner)
    for replica in made["spec"]["tfReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    return made


class Following:
    """The launcher in a thread of its own, and how it ended."""

    def __init__(self, max_restarts=3, deadline_seconds=None, made=None, anew=False):
        self.error = None
        self._thread = threading.Thread(
            target=self._run, args=(made or tfjob(), max_restarts, deadline_seconds, anew), daemon=True
        )
        self._thread.start()

    def _run(self, made, max_restarts, deadline_seconds, anew):
        try:
            tfjob_launcher.run(made, max_restarts, deadline_seconds, anew=anew)
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


def looked_at(api):
    """Waits until the launcher, which goes on, has seen the TFJob and its pods as they are now."""

    def asked():
        return sum(verb == "get" and path.endswith(f"/tfjobs/{NAME}") for verb, path in api.requests)

    before = asked()
    wait_until(lambda: asked() >= before + 2)  # between the two it has asked for the pods


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
    monkeypatch.setattr(retry, "PATIENCE_SECONDS", 1.0)
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


def test_a_retried_step_owns_the_job(api):
    """Else it would go with the pod of the earlier try."""
    first = started(api, made=tfjob(owner=Owner("step", "a-uid")))
    made = api.get(NAMESPACE, NAME)
    second = Following(made=tfjob(owner=Owner("step-again", "another-uid")))
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "step-again", "uid": "another-uid"}]
    wait_until(lambda: api.get(NAMESPACE, NAME)["metadata"]["ownerReferences"] == owners)
    api.delete_owner("a-uid")
    job = api.get(NAMESPACE, NAME)
    assert (job["metadata"]["uid"], job["spec"]) == (made["metadata"]["uid"], made["spec"])
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert (first.ended(), second.ended()) == (None, None)
    api.delete_owner("another-uid")
    assert not exists(api)


def test_a_job_that_is_gone_before_a_retried_step_owns_it(api):
    made = started(api)
    api.fail(404, verb="patch")
    error = Following().ended()
    assert isinstance(error, TrainingError)
    assert str(error).startswith(f"TFJob {NAME} is gone")
    assert isinstance(made.ended(), TrainingError)


def succeeded_before(api):
    """Has a TFJob of an earlier try be there that has succeeded; returns its uid."""
    first = started(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert first.ended() is None
    return api.get(NAMESPACE, NAME)["metadata"]["uid"]


def test_a_job_of_an_earlier_try_that_succeeded_is_done(api, caplog):
    caplog.set_level("INFO", logger="absl")
    uid = succeeded_before(api)
    assert Following().ended() is None
    assert api.get(NAMESPACE, NAME)["metadata"]["uid"] == uid
    assert f"TFJob {NAME} of an earlier try has succeeded" in caplog.text


def test_a_job_of_an_earlier_try_that_succeeded_is_made_anew_where_that_is_wanted(api):
    uid = succeeded_before(api)
    second = Following(anew=True)
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != uid)
    assert second.goes_on
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert second.ended() is None


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
    api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": "2026-01-01T00:00:00Z"})
    error = following.ended()
    assert str(error) == f"TFJob {NAME} takes longer than active_deadline_seconds"
    assert not exists(api)


def test_time_counts_from_when_the_operator_starts_a_job(api):
    """By our own clock: the cluster's may be hours away from it."""
    following = started(api, deadline_seconds=2)
    suspended = status(condition("Created"), condition("Suspended"))
    running = status(condition("Created"), condition("Running"))
    for queued in (status(condition("Created")), suspended):
        api.set_status(NAMESPACE, NAME, queued)
        time.sleep(1.1)
    api.set_status(NAMESPACE, NAME, running | {"startTime": "2026-01-01T00:00:00Z"})
    looked_at(api)
    api.set_status(NAMESPACE, NAME, suspended | {"startTime": "2026-01-01T00:00:00Z"})
    time.sleep(2.1)
    api.set_status(NAMESPACE, NAME, running | {"startTime": "2026-01-01T00:00:02Z"})
    looked_at(api)
    assert str(following.ended()) == f"TFJob {NAME} takes longer than active_deadline_seconds"


def test_time_of_a_job_is_not_that_of_the_one_after_it(api):
    following = started(api, deadline_seconds=1)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": "2026-01-01T00:00:00Z"})
    looked_at(api)
    api.unreachable(1.5)  # so that the first that is heard after its time is how it ended
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed")) | {"startTime": "2026-01-01T00:00:00Z"})
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    looked_at(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert following.ended() is None


def test_pods_of_after_a_suspension_are_no_restarts(api, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    waits = f"echo starts; while ! test -e {tmp_path}/done; do sleep 0.1; done"
    with TrainingOperator(api, tmp_path / "pods"):
        following = Following(made=tfjob(waits), max_restarts=0)
        wait_until(lambda: caplog.text.count("chief: starts") == 1)
        api.suspend(NAMESPACE, NAME)
        wait_until(lambda: "Suspended" in caplog.text and not api.objects("pods"))
        api.suspend(NAMESPACE, NAME, False)
        wait_until(lambda: caplog.text.count("chief: starts") == 2)
        looked_at(api)
        (tmp_path / "done").touch()
        assert following.ended() is None


def test_restarts_of_before_a_suspension_count(api):
    """A suspension that is over before anybody looks too: what is left of it is another time of the start."""
    following = started(api, max_restarts=1)

    def started_at(when):
        api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": f"2026-01-01T00:00:0{when}Z"})
        looked_at(api)

    def made_anew():
        api.delete(NAMESPACE, f"{NAME}-chief-0", "pods")
        api.set_pod(NAMESPACE, pod())

    started_at(0)
    api.set_pod(NAMESPACE, pod())
    looked_at(api)
    made_anew()
    looked_at(api)
    started_at(5)
    made_anew()
    looked_at(api)
    made_anew()
    assert str(following.ended()).endswith("All 1 restarts (max_restarts) are used up")


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


@pytest.mark.parametrize("outer", ["nullcontext", "terminable"])
def test_a_step_that_is_told_to_end_removes_the_job(api, tmp_path, outer):
    """Also where more of the step than this is ready for being told."""
    (tmp_path / "job.json").write_text(json.dumps(tfjob()))
    code = (
        "import json, sys; from contextlib import nullcontext; "
        "from tfx_distribute.components.launchers.tfjob import launcher as tfjob_launcher; "
        "from tfx_distribute.components.launchers.sigterm import terminable\n"
        f"with {outer}():\n"
        "    tfjob_launcher.run(json.load(open(sys.argv[1])), 3)"
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


# Whom its pods act as.


def token(claims):
    """A token as a pod has it, with a signature that nobody asks for."""
    parts = [json.dumps({"alg": "RS256"}), json.dumps(claims), "signature"]
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


@pytest.fixture
def account(tmp_path, monkeypatch):
    """A function that writes the token of this step."""
    file = tmp_path / "token"
    monkeypatch.setattr(tfjob_launcher, "_TOKEN_FILE", file)
    return file.write_text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # Of three lengths: they need none, two or one character at their end to be whole.
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
    assert tfjob_launcher.service_account() is None, "there is no token"
    account(text)
    assert tfjob_launcher.service_account() == name


def test_pods_act_as_the_step_where_nobody_is_named(api, account):
    account(token({"sub": "system:serviceaccount:team:pipeline-runner"}))
    made = tfjob(workers=2)
    made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] = "trainer"
    given = copy.deepcopy(made)
    following = started(api, made=made)
    (job,) = api.objects("tfjobs")
    names = {
        kind: replica["template"]["spec"]["serviceAccountName"] for kind, replica in job["spec"]["tfReplicaSpecs"].items()
    }
    assert names == {"Chief": "pipeline-runner", "Worker": "trainer"}
    assert made == given
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert following.ended() is None


def test_pods_act_as_nobody_in_particular_outside_of_a_cluster(api, account):
    following = started(api)
    (job,) = api.objects("tfjobs")
    assert "serviceAccountName" not in job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert following.ended() is None

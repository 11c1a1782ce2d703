"""Tests the fakes of Kubernetes and the Training Operator through `kubernetes`."""

import json
import queue
import threading
from collections.abc import Callable, Iterator

import pytest
from kubernetes import client, watch
from kubernetes_api import ApiServer
from running import wait_until
from tfjob_admission import CRD, Document
from urllib3.exceptions import HTTPError

TFJOBS = ("kubeflow.org", "v1", "default", "tfjobs")


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def connect(api: ApiServer) -> client.ApiClient:
    return client.ApiClient(client.Configuration(host=api.url))


def jobs(api: ApiServer) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(connect(api))


def pods(api: ApiServer) -> client.CoreV1Api:
    return client.CoreV1Api(connect(api))


def replica(script: str, replicas: int = 1, restart: str = "Never", **container: object) -> Document:
    inner = {"name": "tensorflow", "image": "image", "command": ["sh", "-c"], "args": [script], **container}
    return {"replicas": replicas, "restartPolicy": restart, "template": {"spec": {"containers": [inner]}}}


def tfjob(name: str = "job", policy: Document | None = None, **replicas: Document) -> Document:
    spec = {"runPolicy": policy or {}, "tfReplicaSpecs": replicas or {"Worker": replica("true")}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def create(api: ApiServer, body: Document, **options: object) -> Document:
    return jobs(api).create_namespaced_custom_object(*TFJOBS, body, **options)


def refusal(call: Callable[..., object], *arguments: object, **options: object) -> Document:
    with pytest.raises(client.ApiException) as refused:
        call(*arguments, **options)
    status = json.loads(refused.value.body)
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", refused.value.status)
    return status


def conditions(api: ApiServer, name: str = "job") -> dict[str, str]:
    """Conditions of a job that hold, with their reasons."""
    status = api.get("default", name).get("status", {})
    return {each["type"]: each["reason"] for each in status.get("conditions", []) if each["status"] == "True"}


def printed(api: ApiServer, pod: str) -> str:
    """Unlike the client, does not take a line that is JSON for anything but text."""
    return pods(api).read_namespaced_pod_log(pod, "default", _preload_content=False).data.decode()


def follow(api: ApiServer, pod: str) -> Iterator[str]:
    """The lines that a running pod prints."""
    wait_until(lambda: api.get("default", pod, "pods")["status"]["phase"] != "Pending")
    return watch.Watch().stream(pods(api).read_namespaced_pod_log, pod, "default", follow=True)


class Watching:
    """A watch in a thread: what it heard, until it ended or broke."""

    def __init__(self, api: ApiServer, **options: object):
        self.heard: queue.Queue = queue.Queue()
        threading.Thread(target=self._watch, args=(jobs(api), options), daemon=True).start()

    def _watch(self, of: client.CustomObjectsApi, options: Document) -> None:
        options = {"timeout_seconds": 30, **options}
        try:
            for event in watch.Watch().stream(of.list_namespaced_custom_object, *TFJOBS, **options):
                self.heard.put((event["type"], event["object"]["metadata"]["name"], event["object"].get("status")))
            self.heard.put("ended")
        except (HTTPError, client.ApiException) as error:
            self.heard.put(error)

    def next(self) -> object:
        return self.heard.get(timeout=10)


def test_objects_are_created_listed_and_deleted(api):
    made = create(api, tfjob())
    assert {"uid", "creationTimestamp", "resourceVersion"} <= set(made["metadata"])
    assert jobs(api).get_namespaced_custom_object(*TFJOBS, "job") == made
    assert jobs(api).list_namespaced_custom_object(*TFJOBS)["items"] == [made]
    assert create(api, tfjob("other"), dry_run="All")["metadata"]["name"] == "other"
    assert refusal(create, api, tfjob())["reason"] == "AlreadyExists"
    other = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    assert refusal(jobs(api).delete_namespaced_custom_object, *TFJOBS, "job", body=other)["code"] == 409
    assert jobs(api).delete_namespaced_custom_object(*TFJOBS, "job")["status"] == "Success"
    gone = refusal(jobs(api).get_namespaced_custom_object, *TFJOBS, "job")
    assert (gone["reason"], gone["message"]) == ("NotFound", 'tfjobs.kubeflow.org "job" not found')
    path = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
    assert api.requests[:3] == [("create", path), ("get", f"{path}/job"), ("list", path)]


def test_pods_are_selected_by_labels(api):
    containers = [{"name": "tensorflow"}]
    for name, role in (("one", "worker"), ("two", "ps")):
        meta = {"name": name, "labels": {"job": "job", "role": role}}
        api.set_pod("default", {"metadata": meta, "spec": {"containers": containers}, "status": {"phase": "Pending"}})
    found = pods(api).list_namespaced_pod("default", label_selector="job=job,role=ps").items
    assert [pod.metadata.name for pod in found] == ["two"]
    watching = watch.Watch()
    for event in watching.stream(pods(api).list_namespaced_pod, "default", label_selector="role!=ps", timeout_seconds=10):
        assert (event["type"], event["object"].metadata.name) == ("ADDED", "one")
        watching.stop()
    assert "ContainerCreating" in refusal(pods(api).read_namespaced_pod_log, "one", "default")["message"]


@pytest.mark.skipif(not CRD.exists(), reason="the schema is not there")
def test_what_the_schema_forbids_is_invalid(api):
    job = tfjob(Worker=replica("true", imagePolicy="Always"), Helper=replica("true"))
    job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = "two"
    job["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "step"}]
    status = refusal(create, api, job)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert "metadata.ownerReferences.uid: Invalid value" in status["message"]
    assert 'unknown field "spec.tfReplicaSpecs.Worker.template.spec.containers[0].imagePolicy"' in status["message"]
    assert 'spec.tfReplicaSpecs.Worker.replicas: Invalid value: "two"' in status["message"]
    assert 'Unsupported value: "Helper"' in status["message"]


def test_what_the_webhook_forbids_is_denied(api):
    status = refusal(create, api, tfjob("0-job", Chief=replica("true", image=""), Master=replica("true", name="main")))
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"].startswith('admission webhook "validator.tfjob.training-operator.kubeflow.org" denied')
    for message in ("DNS-1035", "[0].image: Required value", "with name tensorflow", "more than 1 Chief or Master role"):
        assert message in status["message"]


@pytest.mark.skipif(not CRD.exists(), reason="the schema is not there")
def test_patches_are_merged_and_checked(api):
    job = tfjob()
    job["metadata"]["labels"] = {"kept": "yes", "gone": "yes"}
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "uid"}]
    made, of = create(api, job), jobs(api)
    api.set_status("default", "job", {"conditions": []})
    change = {"metadata": {"ownerReferences": owners, "labels": {"gone": None}}, "status": {"startTime": "never"}}
    patched = of.patch_namespaced_custom_object(*TFJOBS, "job", change)
    assert patched["metadata"] == {
        **made["metadata"],
        "ownerReferences": owners,
        "labels": {"kept": "yes"},
        "resourceVersion": patched["metadata"]["resourceVersion"],
    }
    assert (patched["spec"], patched["status"]) == (made["spec"], {"conditions": []})
    assert api.get("default", "job") == patched
    del owners[0]["uid"]
    assert "ownerReferences.uid" in refusal(of.patch_namespaced_custom_object, *TFJOBS, "job", change)["message"]
    status = refusal(of.patch_namespaced_custom_object, *TFJOBS, "job", {"metadata": {"uid": "another"}})
    assert (status["code"], "metadata.uid: Invalid value: field is immutable" in status["message"]) == (422, True)
    status = refusal(of.patch_namespaced_custom_object, *TFJOBS, "job", {"spec": {"tfReplicaSpecs": None}})
    assert "'tfReplicaSpecs' is a required property" in status["message"]
    assert refusal(of.patch_namespaced_custom_object, *TFJOBS, "other", {})["code"] == 404
    assert api.get("default", "job") == patched


def test_only_what_is_allowed_is_done(api):
    api.allowed = {("kubeflow.org", "tfjobs", "get")}
    assert refusal(create, api, tfjob())["message"] == (
        'tfjobs.kubeflow.org is forbidden: User "system:serviceaccount:kubeflow:pipeline-runner" cannot create resource '
        '"tfjobs" in API group "kubeflow.org" in the namespace "default"'
    )
    assert refusal(jobs(api).get_namespaced_custom_object, *TFJOBS, "job")["code"] == 404
    assert "cannot patch" in refusal(jobs(api).patch_namespaced_custom_object, *TFJOBS, "job", {})["message"]


def test_watches_hear_of_changes(api):
    made = create(api, tfjob())
    watching = Watching(api, field_selector="metadata.name=job")
    assert watching.next() == ("ADDED", "job", None)
    create(api, tfjob("other"))
    api.set_status("default", "job", {"conditions": []})
    assert watching.next() == ("MODIFIED", "job", {"conditions": []})
    api.drop_watches()
    assert isinstance(watching.next(), HTTPError)
    watching = Watching(api, resource_version=made["metadata"]["resourceVersion"])
    assert [watching.next()[:2] for _ in range(2)] == [("ADDED", "other"), ("MODIFIED", "job")]
    api.delete("default", "job")
    assert watching.next()[:2] == ("DELETED", "job")
    api.drop_watches(clean=True)
    assert watching.next() == "ended"
    api.forget_history()
    assert Watching(api, resource_version=made["metadata"]["resourceVersion"]).next().status == 410


def test_requests_fail_as_they_are_told(api):
    api.fail(503, times=2, verb="list")
    create(api, tfjob())
    assert [refusal(jobs(api).list_namespaced_custom_object, *TFJOBS)["code"] for _ in range(2)] == [503, 503]
    assert len(jobs(api).list_namespaced_custom_object(*TFJOBS)["items"]) == 1
    api.installed = False
    with pytest.raises(client.ApiException, match="404 page not found"):
        create(api, tfjob())


def test_an_unreachable_server_comes_back(api):
    watching = Watching(api)
    create(api, tfjob())
    watching.next()
    api.unreachable(1.0)
    assert isinstance(watching.next(), HTTPError)
    with pytest.raises(HTTPError):
        jobs(api).get_namespaced_custom_object(*TFJOBS, "job")

    def answers() -> bool:
        try:
            return bool(jobs(api).get_namespaced_custom_object(*TFJOBS, "job"))
        except HTTPError:
            return False

    wait_until(answers)

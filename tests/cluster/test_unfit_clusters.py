"""Tests what the launcher says about clusters and images that do not fit.

It has the permissions that `tfx-distribute manifests` prints. Each test leaves the
namespace as it was.
"""

import contextlib
import json
import time

import pytest
import yaml
from file_jobs import JOB
from kubernetes import client
from real_cluster import CLAIM, wait_until

from tfx_distribute.components.launchers.kubernetes import client as kubernetes_client
from tfx_distribute.components.launchers.kubernetes import permissions
from tfx_distribute.components.launchers.kubernetes.job_kind import Training
from tfx_distribute.components.launchers.kubernetes.launcher import JOB_KINDS
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.pipelines.runners.kubeflow.rbac import NAME as ROLE
from tfx_distribute.pipelines.runners.kubeflow.settings import Volume
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

MINUTE = 60.0


def needed():
    """Returns each kind of job with each permission that it takes."""
    return [
        (name, each.group, each.resource, each.verb)
        for name, kind in JOB_KINDS.items()
        for each in permissions.needed(kind.plural)
        if name == "tfjob" or each.resource == kind.plural  # the others are the same
    ]


@contextlib.contextmanager
def without(namespace, group, resource, verb):
    """Takes a permission from the role."""
    roles = client.RbacAuthorizationV1Api(namespace.admin)
    before = roles.read_namespaced_role(ROLE, namespace.name).rules

    def replace(rules):
        roles.patch_namespaced_role(ROLE, namespace.name, [{"op": "replace", "path": "/rules", "value": rules}])

    rules = namespace.admin.sanitize_for_serialization(before)
    others = [rule for rule in rules if rule["resources"] != [resource]]
    (changed,) = [rule for rule in rules if rule["resources"] == [resource]]
    verbs = [each for each in changed["verbs"] if each != verb]
    replace([*others, *([{**changed, "verbs": verbs}] if verbs else [])])
    wait_until(lambda: not namespace.allows(group, resource, verb))
    try:
        yield
    finally:
        replace(rules)
        wait_until(lambda: namespace.allows(group, resource, verb))


@pytest.mark.parametrize(("kind", "group", "resource", "verb"), needed(), indirect=["kind"])
def test_a_permission_that_is_missing(start, namespace, kind, group, resource, verb):
    with without(namespace, group, resource, verb):
        launch = start()
        error = launch.wait(MINUTE)
    assert isinstance(error, ConfigurationError)
    assert f"it may not {verb} {resource}; apply what `tfx-distribute manifests` prints" in str(error)
    assert not [job for job in namespace.jobs(kind) if job["metadata"]["name"] == launch.name]


def test_trains_without_the_permission_to_read_events(start, namespace, caplog):
    with without(namespace, "", "events", "list"):
        assert start().wait() is None
    assert "this step may not list events in namespace" in caplog.text


def test_a_cluster_without_the_controller(start, kind, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(kind, "version", "v0")
        error = start().wait(MINUTE)
    assert isinstance(error, ConfigurationError)
    assert f"the cluster does not have {kind.title}s (" in str(error)
    assert f"; {kind.install}, or write targets.kubeflow.training: step" in str(error)


def test_a_controller_that_does_not_react(start, kind, monkeypatch):
    """As one that does not run: it leaves a job that is another's alone."""
    create = kubernetes_client.JobClient.create

    def create_for_another(self, manifest):
        policy = manifest["spec"] if kind.title == "JobSet" else manifest["spec"]["runPolicy"]
        policy["managedBy"] = "kueue.x-k8s.io/multikueue"
        return create(self, manifest)

    monkeypatch.setattr(kubernetes_client.JobClient, "create", create_for_another)
    error = start().wait(MINUTE)
    assert isinstance(error, TrainingError)
    assert f"has no pods after 10 s, and no event says why; see whether the pods of {kind.controller} run" in str(error)


def test_a_webhook_that_does_not_answer(start, namespace, kind):
    hooks = client.AdmissionregistrationV1Api(namespace.admin)
    rule = {"apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [kind.plural], "operations": ["CREATE"]}
    webhook = {
        "name": "validator.jobs.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"namespace": namespace.name, "name": "nobody"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}},
        "rules": [rule],
    }
    hooks.create_validating_webhook_configuration({"metadata": {"name": namespace.name}, "webhooks": [webhook]})
    try:
        time.sleep(3)  # until the API server knows it
        error = start().wait(MINUTE)
    finally:
        hooks.delete_validating_webhook_configuration(namespace.name)
        time.sleep(3)
    assert isinstance(error, ConfigurationError)
    assert 'failed calling webhook "validator.jobs.example.com"' in str(error)
    assert f"see whether the pods of {kind.controller} run" in str(error)


def test_fields_that_the_cluster_does_not_know(start, namespace, kind):
    """As those of an old version of the resource, which drops them."""
    error = start(pod={"fieldOfTheFuture": True}).wait(MINUTE)
    assert isinstance(error, ConfigurationError)
    assert f"the {kind.title}s of this cluster have no spec." in str(error)
    assert f"template.spec.fieldOfTheFuture; {kind.install}" in str(error)
    wait_until(lambda: not namespace.jobs(kind))


def test_a_name_that_is_too_long_for_hosts():
    training = Training("digits-" + "x" * 50, JOB, Distribution(), {}, 1)
    settings = KubernetesSettings("digits", {"spec": {"containers": [{}]}}, {})
    with pytest.raises(
        ConfigurationError, match="with 73 characters, and 63 are allowed; write a name that is shorter by 10"
    ):
        JOB_KINDS["jobset"].make_manifest(training, settings)


def test_a_namespace_that_does_not_exist(start, namespace, tmp_path, monkeypatch):
    """Somebody who may do everything names it."""
    admin = yaml.safe_load(namespace.kubeconfig.read_text())
    configuration = namespace.admin.configuration
    admin["contexts"][0]["context"]["namespace"] = "nowhere"
    admin["users"][0]["user"] = {"client-certificate": configuration.cert_file, "client-key": configuration.key_file}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(admin))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    error = start().wait(MINUTE)
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith("the cluster has no namespace nowhere (")


def test_an_image_without_the_package(start):
    error = start(f"exec python -S -m tfx_distribute.trainer_module --job {JOB}").wait()  # -S hides all packages
    assert isinstance(error, TrainingError)
    assert "No module named 'tfx_distribute'" in str(error)
    assert "the image lacks tfx-distribute" in str(error)


def test_an_image_without_python(start):
    error = start(["no-such-python", "-m", "tfx_distribute.trainer_module"]).wait()
    assert isinstance(error, TrainingError)
    assert "the image lacks tfx-distribute" in str(error)


def test_a_volume_that_is_not_shared(start):
    error = start(None, pod={"volumes": []}).wait()
    assert isinstance(error, TrainingError)
    assert f"--job: {JOB} cannot be read: No such file or directory; the step that started this process wrote it" in str(
        error
    )
    assert "ReadWriteMany" in str(error)


def test_an_image_of_another_version(start, namespace):
    words = f"mkdir -p /shared/training && echo '{json.dumps({'version': '0.0.1'})}' > {JOB}"
    namespace.run("write-job", ["sh", "-c", words])
    error = start(None, volumes=[Volume(claim=CLAIM, mount_path="/shared")]).wait()
    assert isinstance(error, TrainingError)
    assert "but the step that started it has 0.0.1; run both with the same image" in str(error)

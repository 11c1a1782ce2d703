"""Tests what the launcher says about clusters and images that do not fit.

It has the permissions that `tfx-distribute manifests` prints. Each test leaves the
namespace as it was.
"""

import json

import pytest
from file_jobs import JOB
from kubernetes import client
from real_cluster import CLAIM, wait_until

from tfx_distribute.pipelines.targets.kubeflow.rbac import NAME as ROLE
from tfx_distribute.pipelines.targets.kubeflow.settings import Volume
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

MINUTE = 60.0


def test_a_cluster_without_the_controller(start, kind, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(kind, "version", "v0")
        error = start().wait(MINUTE)
    assert isinstance(error, ConfigurationError)
    assert f"the cluster does not have {kind.title}s (" in str(error)
    assert f"; {kind.install}, or write targets.kubeflow.training: step" in str(error)


def test_a_permission_that_is_missing(start, namespace, kind):
    role = client.RbacAuthorizationV1Api(namespace.admin)
    before = role.read_namespaced_role(ROLE, namespace.name).rules
    rules = [rule for rule in namespace.admin.sanitize_for_serialization(before) if rule["resources"] != [kind.plural]]
    body = [{"op": "replace", "path": "/rules", "value": rules}]
    role.patch_namespaced_role(ROLE, namespace.name, body)
    try:
        wait_until(lambda: not namespace.allows(kind.group, kind.plural, "create"))
        error = start().wait(MINUTE)
    finally:
        body[0]["value"] = namespace.admin.sanitize_for_serialization(before)
        role.patch_namespaced_role(ROLE, namespace.name, body)
        wait_until(lambda: namespace.allows(kind.group, kind.plural, "create"))
    assert isinstance(error, ConfigurationError)
    assert "apply what `tfx-distribute manifests` prints" in str(error)


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

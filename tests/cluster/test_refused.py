"""Tests what the launcher says about pods that cannot start or train on a real cluster.

The launcher has the permissions of docs/trainer-role.yaml. Each test leaves the
namespace as it was.
"""

import contextlib
import json
import uuid

import pytest
from cluster_jobs import JOB
from real_cluster import CLAIM, make_pod, wait_until

from tfx_distribute.components.launchers.errors import NoRoomError
from tfx_distribute.pipelines.targets.kubeflow.settings import Secret, SecurityContext, Volume
from tfx_distribute.trainer_module.errors import TrainingError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


@contextlib.contextmanager
def quota(namespace, **hard):
    """Limits what a namespace may use, once the cluster counts it."""
    core = namespace.core
    wait_until(lambda: not namespace.pods())  # those of the test before
    core.create_namespaced_resource_quota(namespace.name, {"metadata": {"name": "small"}, "spec": {"hard": hard}})
    wait_until(lambda: core.read_namespaced_resource_quota("small", namespace.name).status.hard)
    try:
        yield
    finally:
        core.delete_namespaced_resource_quota("small", namespace.name)
        wait_until(lambda: not core.list_namespaced_resource_quota(namespace.name).items)


@contextlib.contextmanager
def labelled(namespace, **labels):
    core = namespace.core
    core.patch_namespace(namespace.name, {"metadata": {"labels": labels}})
    try:
        yield
    finally:
        core.patch_namespace(namespace.name, {"metadata": {"labels": dict.fromkeys(labels)}})


def restricted(namespace):
    return labelled(namespace, **{"pod-security.kubernetes.io/enforce": "restricted"})


def check_ends_at_once(launch, caplog, *words):
    """Checks that what only a person can mend ends the training, and is said once."""
    error = launch.wait(60)
    assert isinstance(error, TrainingError)
    assert all(word in str(error) for word in words), error
    assert caplog.text.count(words[0]) <= 1
    wait_until(lambda: not launch.job)


# What no waiting mends.


def test_a_quota_that_counts_what_nobody_has_written(start, namespace, caplog):
    with quota(namespace, **{"limits.memory": "8Gi"}):
        words = ("failed quota: small: must specify limits.memory", "write cpu and memory")
        check_ends_at_once(start(), caplog, *words)


def test_an_unknown_service_account(start, caplog):
    words = ('serviceaccount "nobody" not found', "targets.kubeflow.service_account")
    check_ends_at_once(start(service_account="nobody"), caplog, *words)


def test_a_restricted_namespace_refuses_root(start, namespace, caplog):
    with restricted(namespace):
        launch = start(security_context=SecurityContext(run_as_non_root=False))
        check_ends_at_once(launch, caplog, 'violates PodSecurity "restricted', "security_context")


# What may pass.


def test_a_quota_for_one_of_two_pods(start, namespace):
    with quota(namespace, pods="1"):
        error = start("sleep 300", workers=2, start_seconds=8.0).wait()
    assert isinstance(error, NoRoomError)
    assert "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1; ask for smaller" in str(error)


def test_a_quota_that_is_freed(start, namespace, caplog):
    with quota(namespace, pods="1"):
        namespace.apply(make_pod("idle", namespace.image, ["sleep", "600"]))
        launch = start()
        wait_until(lambda: "exceeded quota" in caplog.text)
        namespace.delete_pod("idle")
        assert launch.wait() is None


def test_a_restricted_namespace_admits_our_pods(start, namespace):
    with restricted(namespace):
        assert start(workers=2).wait() is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"image": "registry.invalid/nothing:1"}, ("registry.invalid/nothing", "write another targets.kubeflow.image")),
        ({"secrets": [Secret(name="s3", env={"A": "a"})]}, ('secret "s3" not found', "targets.kubeflow.secrets")),
        (
            {"volumes": [Volume(claim="nothing", mount_path="/x")]},
            ('persistentvolumeclaim "nothing" not found', "targets.kubeflow.volumes"),
        ),
    ],
    ids=["image", "secret", "claim"],
)
def test_a_pod_that_cannot_start(start, caplog, settings, words):
    error = start(**settings, start_seconds=30.0).wait()
    assert isinstance(error, NoRoomError)
    assert "has not started within 30 s" in str(error)
    assert all(word in caplog.text for word in words), caplog.text


def test_a_secret_that_comes(start, namespace, caplog):
    name = f"late-{uuid.uuid4().hex[:8]}"
    launch = start('test "$A" = 1', secrets=[Secret(name=name, env={"A": "a"})])
    wait_until(lambda: f'secret "{name}" not found' in caplog.text)
    namespace.core.create_namespaced_secret(namespace.name, {"metadata": {"name": name}, "stringData": {"a": "1"}})
    assert launch.wait() is None


# Images and volumes that do not fit.


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"exec python -S -m tfx_distribute.trainer_module --job {JOB}", "No module named 'tfx_distribute'"),  # no packages
        (["no-such-python", "-m", "tfx_distribute.trainer_module"], ""),
    ],
)
def test_an_image_without_the_package_or_python(start, command, words):
    error = start(command).wait()
    assert isinstance(error, TrainingError)
    assert words in str(error)
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

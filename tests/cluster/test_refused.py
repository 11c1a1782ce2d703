"""Tests what the launcher says about pods that do not start on a real cluster.

The launcher has the permissions that `tfx-distribute manifests` prints. Each test
leaves the namespace as it was.
"""

import contextlib
import re
import time
import uuid

import pytest
from real_cluster import make_pod, wait_until

from tfx_distribute.components.launchers.kubernetes import pod_starts, refusals
from tfx_distribute.pipelines.runners.kubeflow.settings import Secret, SecurityContext, Volume
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.errors import TrainingError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

MINUTE = 60.0
FINAL_SECONDS = refusals.FINAL_SECONDS
POD_NAME_END = re.compile(r"-[a-z0-9]{5}(?=\" is forbidden)")


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


def check_refused(launch, namespace, caplog, *words):
    """Checks that a refusal was logged at once, only once, and ended the step soon."""
    wait_until(lambda: all(word in caplog.text for word in words), 30)
    assert launch.is_running, "it goes on for a while"
    error = launch.wait(MINUTE)
    assert isinstance(error, TrainingError)
    assert all(word in str(error) for word in words), error
    # JobSet makes pods again and again, each with a name of its own.
    logged, refusal = (POD_NAME_END.sub("", text) for text in (caplog.text, str(error)))
    assert logged.count(refusal) == 1
    wait_until(lambda: launch.name not in [job["metadata"]["name"] for job in namespace.jobs(launch.kind)])


# Pods that the cluster refuses.


def test_a_quota_that_is_too_small(start, namespace, kind, caplog, monkeypatch):
    """With one kind of job, the launcher waits as long as in use."""
    if kind.name == "tfjob":
        monkeypatch.setattr(refusals, "FINAL_SECONDS", FINAL_SECONDS)
    with quota(namespace, pods="0"):
        check_refused(start(), namespace, caplog, "exceeded quota: small, requested: pods=1, used: pods=0", "quota of the")


def test_a_quota_for_one_of_two_pods(start, namespace, caplog):
    with quota(namespace, pods="1"):
        launch = start("sleep 300", workers=2, options={"quota_timeout_seconds": 5})
        error = launch.wait()
    assert isinstance(error, TrainingError)
    assert "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1; ask for smaller" in str(error)
    assert launch.seconds < MINUTE


def test_a_quota_of_names(start, namespace, kind, caplog, monkeypatch):
    """The Training Operator then looks at no pod, and its TFJob never ends.

    JobSet makes names first.
    """
    with quota(namespace, services="0"):
        words = ("exceeded quota: small, requested: services=1", "have the quota")
        check_refused(start("sleep 300"), namespace, caplog, *words)
        monkeypatch.setattr(refusals, "FINAL_SECONDS", FINAL_SECONDS)  # longer than a pod takes
        assert kind.name == "jobset" or start("sleep 5").wait() is None


@pytest.mark.parametrize("kind", ["jobset"], indirect=True)
def test_a_quota_of_jobs(start, namespace, caplog):
    """JobSet says that its Jobs are refused from version 0.12 on."""
    with quota(namespace, **{"count/jobs.batch": "1"}):
        launch = start("sleep 300", workers=3)
        wait_until(lambda: "exceeded quota: small" in caplog.text or "no event says why" in caplog.text)
        if "exceeded quota: small" not in caplog.text:
            assert f"JobSet {launch.name} has no pod of worker 0, worker 1 after 10 s" in caplog.text
            assert "a quota or a policy may refuse what they make" in caplog.text
        assert launch.is_running, "they may be made yet"


def test_a_quota_that_is_freed(start, namespace, caplog):
    with quota(namespace, pods="1"):
        namespace.apply(make_pod("idle", namespace.image, ["sleep", "600"]))
        launch = start()
        wait_until(lambda: "exceeded quota" in caplog.text)
        namespace.delete_pod("idle")
        assert launch.wait() is None


def test_a_quota_that_counts_what_nobody_has_written(start, namespace, caplog):
    with quota(namespace, **{"limits.memory": "8Gi"}):
        check_refused(start(), namespace, caplog, "failed quota: small: must specify limits.memory", "write cpu and memory")


def test_a_limit_range(start, namespace, caplog):
    limits = {"limits": [{"type": "Container", "max": {"memory": "256Mi"}}]}
    namespace.core.create_namespaced_limit_range(namespace.name, {"metadata": {"name": "small"}, "spec": limits})
    try:
        launch = start(machine=MachineSpec(memory="1Gi"))
        check_refused(launch, namespace, caplog, "maximum memory usage per Container is 256Mi", "in resources")
    finally:
        namespace.core.delete_namespaced_limit_range("small", namespace.name)


def test_an_unknown_service_account(start, namespace, caplog):
    launch = start(service_account="nobody")
    check_refused(launch, namespace, caplog, 'serviceaccount "nobody" not found', "targets.kubeflow.service_account")


def test_an_unknown_priority_class(start, namespace, caplog):
    launch = start(pod={"priorityClassName": "nobody"})
    check_refused(launch, namespace, caplog, "no PriorityClass with name nobody was found", "create the class")


def test_a_restricted_namespace_admits_our_pods(start, namespace):
    with restricted(namespace):
        assert start(workers=2).wait() is None


def test_a_restricted_namespace_refuses_root(start, namespace, caplog):
    with restricted(namespace):
        launch = start(security_context=SecurityContext(run_as_non_root=False))
        check_refused(launch, namespace, caplog, 'violates PodSecurity "restricted', "targets.kubeflow.security_context")


def test_a_refusal_after_a_suspension(start, namespace, caplog):
    """What was refused before does not count."""
    caplog.set_level("INFO", logger="absl")
    launch = start("sleep 300")

    wait_until(lambda: "Running" in caplog.text)
    namespace.suspend_job(launch.kind, launch.name, True)
    wait_until(lambda: "Suspended" in caplog.text)
    with quota(namespace, pods="0"):
        time.sleep(5)
        assert "refuses" not in caplog.text
        namespace.suspend_job(launch.kind, launch.name, False)
        check_refused(launch, namespace, caplog, "exceeded quota: small")


# Pods that cannot start.


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"image": "registry.invalid/nothing:1"}, ("ErrImagePull", "write another targets.kubeflow.image")),
        ({"secrets": [Secret(name="s3", env={"A": "a"})]}, ('secret "s3" not found', "targets.kubeflow.secrets")),
        (
            {"volumes": [Volume(claim="nothing", mount_path="/x")]},
            ('persistentvolumeclaim "nothing" not found', "targets.kubeflow.volumes"),
        ),
    ],
    ids=["image", "secret", "claim"],
)
def test_a_pod_that_cannot_start(start, caplog, monkeypatch, settings, words):
    monkeypatch.setattr(pod_starts, "START_SECONDS", 8.0)
    launch = start(**settings)
    wait_until(lambda: all(word in caplog.text for word in words), 30)
    assert launch.is_running
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert "cannot start (" in str(error)


def test_a_volume_of_a_missing_secret(start, caplog, monkeypatch):
    """Only an event on the pod says so."""
    monkeypatch.setattr(pod_starts, "START_SECONDS", 8.0)
    volumes, mounts = [{"name": "v", "secret": {"secretName": "nothing"}}], [{"name": "v", "mountPath": "/v"}]
    launch = start(pod={"volumes": volumes}, container={"volumeMounts": mounts})
    words = 'cannot start (FailedMount: MountVolume.SetUp failed for volume "v" : secret "nothing" not found)'
    wait_until(lambda: words in caplog.text, 15)
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert words in str(error)


def test_a_secret_that_comes(start, namespace, caplog):
    name = f"late-{uuid.uuid4().hex[:8]}"
    launch = start('test "$A" = 1', secrets=[Secret(name=name, env={"A": "a"})])
    wait_until(lambda: f'secret "{name}" not found' in caplog.text)
    namespace.core.create_namespaced_secret(namespace.name, {"metadata": {"name": name}, "stringData": {"a": "1"}})
    assert launch.wait() is None

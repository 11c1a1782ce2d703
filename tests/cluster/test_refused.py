"""Tests what the launcher says about pods that do not start on a real cluster.

The launcher has the permissions that `tfx-distribute manifests` prints. Each test
leaves the namespace as it was.
"""

import contextlib
import json
import time
import uuid

import pytest
import yaml
from kubernetes import client
from launching import Launch
from real_cluster import CLAIM, USER, make_pod, wait_until

from tfx_distribute.components.launchers.kubernetes import client as kubernetes_client
from tfx_distribute.components.launchers.kubernetes import missing_pods, permissions, pod_starts, refusals
from tfx_distribute.components.launchers.kubernetes.job_kind import Training
from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.pipelines.runners.kubeflow import pods
from tfx_distribute.pipelines.runners.kubeflow.rbac import NAME as ROLE
from tfx_distribute.pipelines.runners.kubeflow.settings import KubeflowSettings, Secret, SecurityContext, Volume
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

MINUTE = 60.0
FINAL_SECONDS = refusals.FINAL_SECONDS
JOB = "/shared/training/job.json"


@pytest.fixture
def short_waits(monkeypatch):
    """Makes the launcher wait less than in use, except in the test of a quota."""
    monkeypatch.setattr(refusals, "FINAL_SECONDS", 10.0)
    monkeypatch.setattr(missing_pods, "CONTROLLER_SECONDS", 10.0)
    monkeypatch.setattr(kubernetes_client, "WEBHOOK_SECONDS", 10.0)


@pytest.fixture
def start(namespace, kind, as_step, short_waits):
    """Returns a function that starts a job; its pods are those of a pipeline file.

    Its arguments: the command of pods (None for that of a training process, a text for
    a shell), the number of workers, the machine, what replaces parts of the spec of
    pods and of their container, options of the launcher, and settings of the target.
    """
    started = []

    def make(command="exit 0", workers=1, machine=None, pod=None, container=None, options=None, **settings):
        target = KubeflowSettings(**{"image": namespace.image, "pipeline_root": "gs://bucket/root", **settings})
        template = pods.make_pod_template(pods.make_machine(machine or MachineSpec(), "kubernetes"), target)
        template["spec"] |= {"terminationGracePeriodSeconds": 1, **(pod or {})}
        template["spec"]["containers"][0] |= container or {}
        if target.security_context.run_as_non_root is not False:  # as the launcher does in a step
            template["spec"]["securityContext"] = {"runAsUser": USER, **template["spec"]["securityContext"]}
        distribution = Distribution("multi_worker_mirrored", num_workers=workers) if workers > 1 else Distribution()
        name = f"digits-{uuid.uuid4().hex[:8]}"
        training = Training(name, JOB, distribution, {}, 1)
        manifest = kind.make_manifest(training, KubernetesSettings("digits", template, template))
        if command is not None:
            for made in kind.pod_templates(manifest):
                words = ["sh", "-c", command] if isinstance(command, str) else command
                made["spec"]["containers"][0]["command"] = words
        started.append(Launch(kind, manifest, 1, **(options or {})))
        return started[-1]

    yield make
    left = [job["metadata"]["name"] for job in namespace.jobs(kind)]
    for launch in started:
        if launch.name in left:
            namespace.delete_job(kind, launch.name)
        launch.wait(60)


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
    assert caplog.text.count(str(error)) == 1
    wait_until(lambda: launch.name not in [job["metadata"]["name"] for job in namespace.jobs(launch.kind)])


# Pods that the cluster refuses.


def test_a_quota_that_is_too_small(start, namespace, caplog, monkeypatch):
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


def test_a_quota_of_names(start, namespace, kind, caplog):
    """The Training Operator then looks at no pod, and its TFJob never ends.

    JobSet makes names first.
    """
    with quota(namespace, services="0"):
        words = ("exceeded quota: small, requested: services=1", "have the quota")
        check_refused(start("sleep 300"), namespace, caplog, *words)
        assert kind.name == "jobset" or start("sleep 5").wait() is None


@pytest.mark.parametrize("kind", ["jobset"], indirect=True)
def test_a_quota_of_jobs(start, namespace, caplog):
    """JobSet does not say that its Jobs are refused, not even in its status."""
    with quota(namespace, **{"count/jobs.batch": "1"}):
        launch = start("sleep 300", workers=3)
        wait_until(lambda: "no event says why" in caplog.text)
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
        ({"image": "Not An Image"}, ("InvalidImageName", "write another targets.kubeflow.image")),
        ({"secrets": [Secret(name="s3", env={"A": "a"})]}, ('secret "s3" not found', "targets.kubeflow.secrets")),
        (
            {"volumes": [Volume(claim="nothing", mount_path="/x")]},
            ('persistentvolumeclaim "nothing" not found', "targets.kubeflow.volumes"),
        ),
    ],
    ids=["image", "name", "secret", "claim"],
)
def test_a_pod_that_cannot_start(start, caplog, monkeypatch, settings, words):
    monkeypatch.setattr(pod_starts, "START_SECONDS", 12.0)
    launch = start(**settings)
    wait_until(lambda: all(word in caplog.text for word in words), 30)
    assert launch.is_running
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert "cannot start (" in str(error)


def test_a_volume_of_a_missing_secret(start, caplog, monkeypatch):
    """Only an event on the pod says so."""
    monkeypatch.setattr(pod_starts, "START_SECONDS", 12.0)
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


# Clusters and images that are not as they should be.


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
    time.sleep(1)
    try:
        yield
    finally:
        replace(rules)
        time.sleep(1)


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

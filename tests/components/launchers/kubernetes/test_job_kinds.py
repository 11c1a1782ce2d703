"""Tests kinds of jobs: manifests against expected documents, and what statuses say."""

import json
from dataclasses import replace

import pytest
from kubernetes import client

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS, TASK_INDEX, KubernetesSettings, Step
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.job.cluster import ClusterTask, task_from_environment, tasks_of
from tfx_distribute.trainer_module.job.training_job import Distribution

NAME = "digits-1"
IMAGE = "registry.example.com/digits:1"


def pod(**limits: str) -> dict:
    container = {"name": "tensorflow", "image": IMAGE, "resources": {"limits": limits}}
    return {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [container]}}


SETTINGS = KubernetesSettings(
    name="digits",
    worker=pod(**{"nvidia.com/gpu": "2", "memory": "32Gi"}),
    parameter_server=pod(memory="8Gi"),
    training_dir="/shared/training",
    labels={"team": "a"},
)
DISTRIBUTIONS = {
    "default": Distribution(),
    "one_device": Distribution("one_device"),
    "mirrored": Distribution("mirrored", accelerator_count=2),
    "central_storage": Distribution("central_storage", accelerator_count=2),
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=3),
    "parameter_server": Distribution("parameter_server", num_workers=2, num_parameter_servers=2),
    "tpu": Distribution("tpu"),
    "model_parallel": Distribution("model_parallel", mesh="1x2"),
}


def make(kind, distribution, settings=SETTINGS):
    training = Training(NAME, "/shared/training/digits-1/job.json", distribution, {"TF_USE_LEGACY_KERAS": "1"}, 3)
    return JOB_KINDS[kind].make_manifest(training, settings, Step("trainer-pod", "1b4b5a5e", "runner", 1000, 1000))


@pytest.mark.parametrize("strategy", ["one_device", "multi_worker_mirrored", "parameter_server"])
def test_jobset_of_each_strategy(strategy, expected):
    expected(f"jobset/{strategy}", make("jobset", DISTRIBUTIONS[strategy]))


@pytest.mark.parametrize("strategy", DISTRIBUTIONS)
def test_tfjob_of_each_strategy(strategy, expected):
    processes = len(tasks_of(DISTRIBUTIONS[strategy]))
    expected(f"tfjob/{strategy if processes > 1 else 'default'}", make("tfjob", DISTRIBUTIONS[strategy]))


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_queue(kind):
    manifest = make(kind, Distribution(), replace(SETTINGS, queue="team-a"))
    assert manifest["metadata"]["labels"] == {"team": "a", "kueue.x-k8s.io/queue-name": "team-a"}


@pytest.mark.parametrize("strategy", DISTRIBUTIONS)
def test_each_pod_of_a_jobset_learns_its_task(strategy):
    distribution, tasks = DISTRIBUTIONS[strategy], set()
    for job in make("jobset", distribution)["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        assert [each["name"] for each in container["env"]][:2] == [TASK_INDEX, "TF_CONFIG"], "the second holds the first"
        values = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        for index in range(job["replicas"]):
            # Kubernetes puts the index in.
            environment = {name: value.replace(f"$({TASK_INDEX})", str(index)) for name, value in values.items()}
            task = task_from_environment(environment)
            tasks.add(task)
            config = json.loads(environment["TF_CONFIG"])
            assert config["cluster"][task.role][index] == f"{NAME}-{task.role}-{index}-0.{NAME}:2222"
    assert tasks == set(tasks_of(distribution))


def test_who_may_be_lost():
    """Their Jobs have pods of their own again; the end of any other ends the try."""
    limits = {}
    for strategy in ("multi_worker_mirrored", "parameter_server"):
        for job in make("jobset", DISTRIBUTIONS[strategy])["spec"]["replicatedJobs"]:
            limits[strategy, job["name"]] = job["template"]["spec"]["backoffLimit"]
    assert limits == {
        ("multi_worker_mirrored", "chief"): 0,
        ("multi_worker_mirrored", "worker"): 0,
        ("parameter_server", "chief"): 0,
        ("parameter_server", "worker"): 3,
        ("parameter_server", "ps"): 0,
    }


def read(kind, conditions=(), suspend=None):
    spec = {} if suspend is None else {"suspend": suspend}
    spec = {"runPolicy": spec} if kind == "tfjob" else spec
    return JOB_KINDS[kind].read_state(
        {"metadata": {"name": NAME, "uid": "u"}, "spec": spec, "status": {"conditions": conditions}}
    )


def condition(kind, status="True", reason="", message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize("kind", JOB_KINDS)
@pytest.mark.parametrize(
    ("conditions", "suspend", "phase"),
    [
        ([], None, "active"),
        ([], True, "suspended"),
        ([condition("Suspended")], True, "suspended"),
        ([condition("Suspended")], False, "active"),
        ([condition("Suspended", "False"), condition("Running")], False, "active"),
        ([condition("Created"), condition("Running", "False"), condition("Restarting")], None, "active"),
        ([condition("Failed")], None, "failed"),
        ([condition("Failed")], True, "failed"),
    ],
)
def test_states(kind, conditions, suspend, phase):
    assert read(kind, conditions, suspend).phase == phase


@pytest.mark.parametrize(("kind", "success"), [("jobset", "Completed"), ("tfjob", "Succeeded")])
def test_success_comes_first(kind, success):
    assert read(kind, [condition("Failed"), condition(success)]).phase == "succeeded"


@pytest.mark.parametrize(
    ("kind", "reason", "suspend", "is_final", "has_restarted"),
    [
        ("tfjob", "TFJobFailed", None, False, False),
        ("jobset", "ReachedMaxRestarts", None, False, True),
        ("jobset", "ReachedMaxRestarts", True, False, False),  # a preemption that looks like a failure
        ("jobset", "FailJobSetFailurePolicyAction", None, True, False),
    ],
)
def test_the_reason_of_an_end(kind, reason, suspend, is_final, has_restarted):
    failed = read(kind, [condition("Failed", reason=reason, message="its words")], suspend)
    assert (failed.reason, failed.is_final, failed.has_restarted) == ("its words", is_final, has_restarted)


@pytest.mark.parametrize(
    ("kind", "role", "index"),
    [
        ("jobset", "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index"),
        ("tfjob", "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"),
    ],
)
def test_task_of_a_pod(kind, role, index):
    pod = client.V1Pod(metadata=client.V1ObjectMeta(name="p", labels={role: "worker", index: "12"}))
    assert JOB_KINDS[kind].task_of(pod) == ClusterTask("worker", 12)

"""Tests JobSets: manifests against expected documents, and what statuses say."""

import json
from dataclasses import replace

import pytest
from kubernetes import client
from pod_settings import DISTRIBUTIONS, SETTINGS

from tfx_distribute.components.launchers.kubernetes.jobset import TASK_INDEX, JobSet
from tfx_distribute.components.launchers.kubernetes.pod_template import Step
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.job.cluster import ClusterTask, task_from_environment, tasks_of
from tfx_distribute.trainer_module.job.training_job import Distribution

NAME = "digits-1"


def make(distribution, settings=SETTINGS):
    training = Training(NAME, "/shared/training/digits-1/job.json", distribution, {"TF_USE_LEGACY_KERAS": "1"}, 3)
    return JobSet().make_manifest(training, settings, Step("trainer-pod", "1b4b5a5e", "runner", 1000, 1000))


def variables(replicated_job, index):
    """Returns the environment of a pod, in which Kubernetes has put the index."""
    (container,) = replicated_job["template"]["spec"]["template"]["spec"]["containers"]
    values = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    return {name: value.replace(f"$({TASK_INDEX})", str(index)) for name, value in values.items()}


@pytest.mark.parametrize("strategy", ["one_device", "multi_worker_mirrored", "parameter_server"])
def test_jobset_of_each_strategy(strategy, expected):
    expected(f"jobset/{strategy}", make(DISTRIBUTIONS[strategy]))


@pytest.mark.parametrize("strategy", DISTRIBUTIONS)
def test_each_pod_learns_its_task(strategy):
    distribution = DISTRIBUTIONS[strategy]
    manifest = make(distribution)
    tasks = set()
    for job in manifest["spec"]["replicatedJobs"]:
        for index in range(job["replicas"]):
            environment = variables(job, index)
            task = task_from_environment(environment)
            tasks.add(task)
            config = json.loads(environment["TF_CONFIG"])
            own = f"{NAME}-{task.role}-{index}-0.{NAME}:2222"
            assert config["cluster"][task.role][index] == own
    assert tasks == set(tasks_of(distribution))


def test_the_variable_comes_before_the_one_that_holds_it():
    for job in make(DISTRIBUTIONS["parameter_server"])["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        assert [each["name"] for each in container["env"]][:2] == [TASK_INDEX, "TF_CONFIG"]


def test_who_may_be_lost():
    """Their Jobs have pods of their own again; the end of any other ends the try."""
    limits = {}
    for strategy in ("multi_worker_mirrored", "parameter_server"):
        for job in make(DISTRIBUTIONS[strategy])["spec"]["replicatedJobs"]:
            limits[strategy, job["name"]] = job["template"]["spec"]["backoffLimit"]
    assert limits == {
        ("multi_worker_mirrored", "chief"): 0,
        ("multi_worker_mirrored", "worker"): 0,
        ("parameter_server", "chief"): 0,
        ("parameter_server", "worker"): 3,
        ("parameter_server", "ps"): 0,
    }


def test_queue():
    manifest = make(Distribution(), replace(SETTINGS, queue="team-a"))
    assert manifest["metadata"]["labels"] == {"team": "a", "kueue.x-k8s.io/queue-name": "team-a"}


def read(status, suspend=None):
    metadata = {"name": NAME, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {} if suspend is None else {"suspend": suspend}
    return JobSet().read_state({"metadata": metadata, "spec": spec, "status": status})


def condition(kind, status="True", reason="", message=""):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:05Z",
    }


@pytest.mark.parametrize(
    ("conditions", "suspend", "phase"),
    [
        ([], None, "active"),
        ([], True, "suspended"),
        ([condition("Suspended")], True, "suspended"),
        ([condition("Suspended")], False, "active"),
        ([condition("Suspended", "False")], False, "active"),
        ([condition("Suspended", "False"), condition("Completed")], False, "succeeded"),
        ([condition("Failed")], None, "failed"),
    ],
)
def test_states(conditions, suspend, phase):
    assert read({"conditions": conditions}, suspend).phase == phase


def test_the_reason_of_an_end():
    failed = read({"conditions": [condition("Failed", reason="ReachedMaxRestarts", message="too often")]})
    assert (failed.reason, failed.is_final, failed.has_restarted) == ("too often", False, True)
    final = read({"conditions": [condition("Failed", reason="FailJobSetFailurePolicyAction", message="for good")]})
    assert (final.reason, final.is_final, final.has_restarted) == ("for good", True, False)


def test_task_of_a_pod():
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/job-index": "12"}
    pod = client.V1Pod(metadata=client.V1ObjectMeta(name="p", labels=labels))
    assert JobSet().task_of(pod) == ClusterTask("worker", 12)


def test_a_preemption_that_looks_like_a_failure():
    conditions = [condition("Failed", reason="ReachedMaxRestarts")]
    preempted = read({"conditions": conditions}, suspend=True)
    assert (preempted.phase, preempted.is_final, preempted.has_restarted) == ("failed", False, False)
    failed = read({"conditions": conditions}, suspend=False)
    assert (failed.is_final, failed.has_restarted) == (False, True), "unless training has advanced"

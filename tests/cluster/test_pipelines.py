"""Tests the digits from the pipeline file to the pushed model, in pods of a cluster.

The API server, the Training Operator, the image, the volume and the permissions are
real. Kubeflow's driver is a stand-in; each step is a pod as Kubeflow makes it.
"""

import pytest
from digits_on_cluster import SERVING, TRAINING, TWO_WORKERS, Installation, install, model
from kubeflow_pipelines import Run, StepError
from pod_faults import RunningTraining, evict, exhaust_memory
from real_cluster import wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def installation(namespace, tmp_path_factory):
    with install(namespace, tmp_path_factory.mktemp("digits")) as installed:
        yield installed


def test_one_process_in_the_step(installation):
    run = installation.run("one process")
    assert run.steps[-1] == "Pusher"
    assert len(installation.pushed()) == 1
    assert (model(run)["strategy"], model(run)["num_replicas"]) == ("one_device", 1)
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1
    assert not [job for kind in JOB_KINDS.values() for job in installation.namespace.jobs(kind)]
    writable = ["find", SERVING, TRAINING, "-perm", "/o=w"]
    assert not installation.namespace.run("writable", writable), "nobody else can write to what is served"
    again = installation.run("one process")
    assert again.cached == again.steps, "the digits declare the version of their data"


def test_two_workers(installation):
    before = len(installation.pushed())
    run = installation.run("many processes", **TWO_WORKERS, epochs=15)
    assert len(installation.pushed()) == before + 1
    assert (model(run)["strategy"], model(run)["num_replicas"], model(run)["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    log = run.logs["Trainer"]
    (job,) = installation.namespace.jobs(TFJOB)
    name = job["metadata"]["name"]
    assert f"created TFJob {name} in namespace {installation.namespace.name}" in log
    assert "Chief 1 active; Worker 1 active" in log
    assert "chief: done; training step" in log
    assert job["metadata"]["ownerReferences"][0]["name"] == installation.steps.pods["Trainer"][-1]
    left = installation.namespace.run("left", ["ls", f"{TRAINING}/{name}"]).split()
    assert left == ["followed.json", "job.json", "outputs", "training_result.json"], "copies of examples are gone"
    saves = installation.namespace.run("saves", ["find", f"{TRAINING}/checkpoints", "-type", "f"])
    assert not saves, "and so is the state"


def test_parameter_servers_with_an_evaluator(installation):
    before = len(installation.pushed())
    parameters = {"strategy": "parameter_server", "num_workers": 1, "num_parameter_servers": 1, "num_evaluators": 1}
    run = installation.run("many processes", **parameters, epochs=40)
    assert len(installation.pushed()) == before + 1
    assert model(run)["training_val_accuracy"] > 0.9, "of the evaluator, which is a process of its own"


def test_a_step_that_is_deleted_continues_in_its_next_pod(installation):
    struck = []

    def strike(step, pod):
        if step.name == "Trainer" and not struck:
            wait_until(lambda: "chief: train; training step" in installation.namespace.log(pod), 120)
            struck.append(pod)
            installation.namespace.delete_pod(pod, grace_seconds=30)

    run = striking(installation, strike, seed=0)
    first, second = installation.steps.pods["Trainer"][-2:]
    assert struck == [first]
    assert first != second
    assert "continues after training step" in run.logs["Trainer"]


@pytest.mark.parametrize(("how", "seed"), [("deleted", 1), ("evicted", 2), ("out of memory", 3)])
def test_a_worker_that_is_lost_costs_no_training(installation, how, seed):
    namespace = installation.namespace

    def strike(step, pod):
        if step.name != "Trainer":
            return
        wait_until(lambda: "chief: train; training step" in namespace.log(pod), 120)
        worker = RunningTraining(namespace, JOB_KINDS["tfjob"], pod).running("worker").metadata.name
        if how == "deleted":
            namespace.delete_pod(worker, grace_seconds=1)
        elif how == "evicted":
            evict(namespace, worker)
        else:
            exhaust_memory(namespace, worker)

    run = striking(installation, strike, seed=seed)
    log = run.logs["Trainer"]
    if how == "out of memory":
        assert "worker-0 ended with exit code 137 (OOMKilled)" in log
    else:
        assert "starting it again from its last save" in log
    assert "continues after training step" in log


def test_a_run_that_is_terminated_leaves_nothing(installation):
    def strike(step, pod):
        if step.name == "Trainer":
            wait_until(lambda: "chief: train; training step" in installation.namespace.log(pod), 120)
            installation.namespace.delete_pod(pod, grace_seconds=30)

    installation.steps.generation = "2.16"  # which does not try a deleted step again
    try:
        with pytest.raises(StepError, match="The pod's end: Deleted"):
            striking(installation, strike, seed=4)
    finally:
        installation.steps.generation = "2.17"
    step = installation.steps.pods["Trainer"][-1]

    def is_left():
        owned = [job for job in installation.namespace.jobs(TFJOB) if job["metadata"]["ownerReferences"][0]["name"] == step]
        return owned or any(pod.status.phase == "Running" for pod in installation.namespace.pods())

    wait_until(lambda: not is_left())


def striking(installation: Installation, strike, seed: int) -> Run:
    """Trains two workers, and lets something happen to a step while it runs.

    Args:
      installation: The installation.
      strike: Called with each step and its pod when it runs.
      seed: Seed of the training, without which it would be taken from the cache.
    """
    parameters = {**TWO_WORKERS, "epochs": 200, "save_checkpoints_secs": 2, "seed": seed}
    return installation.run_and_strike("training only", strike, **parameters)

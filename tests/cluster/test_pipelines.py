"""Tests the digits from the pipeline file to the pushed model, in pods of a cluster.

The API server, the Training Operator, the image, the volume and the permissions are
real. Kubeflow's driver is a stand-in; each step is a pod as Kubeflow makes it.
"""

import re

import pytest
from cluster_queues import PRIORITY_LABEL, queue
from digits_on_cluster import QUEUE, SERVING, TRAINING, TWO_WORKERS, Installation, install, model
from kubeflow_pipelines import Run, StepError
from pod_faults import RunningTraining, evict, exhaust_memory
from real_cluster import Namespace, make_pod, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind
from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS
from tfx_distribute.components.launchers.kubernetes.settings import QUEUE_LABEL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def installation(namespace, tmp_path_factory):
    with install(namespace, tmp_path_factory.mktemp("digits")) as installed:
        yield installed


def test_one_process_in_the_step(installation):
    run = installation.run()
    assert run.steps[-1] == "Pusher"
    assert len(installation.pushed()) == 1
    assert (model(run)["strategy"], model(run)["num_replicas"]) == ("one_device", 1)
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1
    assert not [job for kind in JOB_KINDS.values() for job in installation.namespace.jobs(kind)]
    writable = ["find", SERVING, TRAINING, "-perm", "/o=w"]
    assert not installation.namespace.run("writable", writable), "nobody else can write to what is served"
    again = installation.run()
    assert again.cached == again.steps, "the digits declare the version of their data"


def test_two_workers(installation, kind):
    before = len(installation.pushed())
    run = installation.run(kind.name, **TWO_WORKERS, epochs=15)
    assert len(installation.pushed()) == before + 1
    assert (model(run)["strategy"], model(run)["num_replicas"], model(run)["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    log = run.logs["Trainer"]
    (job,) = installation.namespace.jobs(kind)
    name = job["metadata"]["name"]
    assert f"created {kind.title} {name} in namespace {installation.namespace.name}" in log
    assert "chief 1 active; worker 1 active" in log.lower()
    assert "chief: done; training step" in log
    assert job["metadata"]["ownerReferences"][0]["name"] == installation.steps.pods["Trainer"][-1]
    left = installation.namespace.run("left", ["ls", f"{TRAINING}/{name}"]).split()
    assert left == ["followed.json", "job.json", "outputs", "training_result.json"], "copies of examples are gone"
    saves = installation.namespace.run("saves", ["find", f"{TRAINING}/checkpoints", "-type", "f"])
    assert not saves, "and so is the state"


def test_parameter_servers_with_an_evaluator(installation, kind):
    before = len(installation.pushed())
    parameters = {"strategy": "parameter_server", "num_workers": 1, "num_parameter_servers": 1, "num_evaluators": 1}
    run = installation.run(kind.name, **parameters, epochs=40)
    assert len(installation.pushed()) == before + 1
    assert model(run)["training_val_accuracy"] > 0.9, "of the evaluator, which is a process of its own"


def test_a_step_that_is_deleted_continues_in_its_next_pod(installation, kind):
    struck = []

    def strike(step, pod):
        if step.name == "Trainer" and not struck:
            wait_until(lambda: has_saved(installation.namespace.log(pod)), 180)
            struck.append(pod)
            installation.namespace.delete_pod(pod, grace_seconds=30)

    run = striking(installation, kind, strike, seed=0)
    first, second = installation.steps.pods["Trainer"][-2:]
    assert struck == [first]
    assert first != second
    assert "continues after training step" in run.logs["Trainer"]


@pytest.mark.parametrize(("how", "seed"), [("deleted", 1), ("evicted", 2), ("out of memory", 3)])
def test_a_worker_that_is_lost_costs_no_training(installation, kind, how, seed):
    namespace = installation.namespace

    def strike(step, pod):
        if step.name != "Trainer":
            return
        wait_until(lambda: has_saved(namespace.log(pod)), 180)
        worker = RunningTraining(namespace, kind, pod).running("worker").metadata.name
        if how == "deleted":
            namespace.delete_pod(worker, grace_seconds=1)
        elif how == "evicted":
            evict(namespace, worker)
        else:
            exhaust_memory(namespace, worker)

    run = striking(installation, kind, strike, seed=seed)
    log = run.logs["Trainer"]
    if how != "out of memory" and not kind.restarts_itself:
        assert "starting it again from its last save" in log
    assert "continues after training step" in log


def test_a_run_that_is_terminated_leaves_nothing(installation, kind):
    def strike(step, pod):
        if step.name == "Trainer":
            wait_until(lambda: has_saved(installation.namespace.log(pod)), 180)
            installation.namespace.delete_pod(pod, grace_seconds=30)

    installation.steps.generation = "2.16"  # which does not try a deleted step again
    try:
        with pytest.raises(StepError, match="The pod's end: Deleted"):
            striking(installation, kind, strike, seed=4)
    finally:
        installation.steps.generation = "2.17"
    step = installation.steps.pods["Trainer"][-1]

    def is_left():
        owned = [job for job in installation.namespace.jobs(kind) if job["metadata"]["ownerReferences"][0]["name"] == step]
        return owned or any(pod.status.phase == "Running" for pod in installation.namespace.pods())

    wait_until(lambda: not is_left())


def test_a_training_that_is_preempted_goes_on_from_its_last_save(installation, kind):
    """It has no restart to use up."""
    namespace = installation.namespace

    def strike(step, pod):
        if step.name == "Trainer":
            wait_until(lambda: has_saved(namespace.log(pod)), 180)
            namespace.apply(urgent_job(namespace))

    with queue(namespace, QUEUE, "memory", "4Gi"):  # two workers of 2 GiB
        run = striking(installation, kind, strike, 5, "queue", max_restarts=0)
    log = run.logs["Trainer"]
    assert f"waits in queue {QUEUE}: Preempted to accommodate a workload" in log
    assert "continues after training step" in log


def has_saved(log: str) -> bool:
    """Returns True once a training was reported again, ten seconds after its start."""
    return re.search(r"chief: train; training step [1-9]", log) is not None


def urgent_job(namespace: Namespace) -> dict:
    """Returns a Job that takes the place of others in the queue for some seconds."""
    pod = make_pod("urgent", namespace.image, ["sleep", "5"])
    pod["spec"]["containers"][0]["resources"] = {"requests": {"memory": "1Gi"}}
    labels = {QUEUE_LABEL: QUEUE, PRIORITY_LABEL: namespace.name}
    metadata = {"generateName": "urgent-", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod["spec"]}}}


def striking(installation: Installation, kind: JobKind, strike, seed: int, *more: str, **parameters) -> Run:
    """Trains two workers, and lets something happen to a step while it runs.

    Args:
      installation: The installation.
      kind: Kind of the job.
      strike: Called with each step and its pod when it runs.
      seed: Seed of the training, without which it would be taken from the cache.
      *more: More words of the variant.
      **parameters: More parameters.
    """
    parameters = {**TWO_WORKERS, "epochs": 150, "save_checkpoints_secs": 2, "seed": seed, **parameters}
    return installation.run_and_strike(kind.name, "evaluate", "push", *more, strike=strike, **parameters)

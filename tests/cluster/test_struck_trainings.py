"""Tests trainings of the digits in pods of a cluster that something happens to.

As in test_pipelines, all is real but Kubeflow's driver.
"""

import re

import pytest
from cluster_queues import PRIORITY_LABEL, queue
from digits_on_cluster import QUEUE, TWO_WORKERS, Installation
from kubeflow_pipelines import Run, StepError
from pod_faults import RunningTraining, evict, exhaust_memory
from real_cluster import Namespace, make_pod, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind
from tfx_distribute.components.launchers.kubernetes.settings import QUEUE_LABEL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}


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


@pytest.mark.parametrize(
    ("kind", "how", "seed"),
    [("tfjob", "deleted", 1), ("jobset", "evicted", 2), ("tfjob", "out of memory", 3)],
    indirect=["kind"],
)
def test_a_worker_that_is_lost_costs_no_training(installation, kind, how, seed):
    """Each way with one kind of job: test_jobs has all of them with both."""
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
    parameters = {**TWO_WORKERS, "epochs": 100, "save_checkpoints_secs": 2, "seed": seed, **parameters}
    return installation.run_and_strike(kind.name, "evaluate", "push", *more, strike=strike, **parameters)

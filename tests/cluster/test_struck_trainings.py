"""Tests trainings of the digits in pods of a cluster that something happens to.

As in test_pipelines, all is real but Kubeflow's driver. Each training is struck several
times, since each start of one takes a while.
"""

import re

import pytest
from cluster_queues import PRIORITY_LABEL, queue
from digits_on_cluster import QUEUE, TRAIN_ONLY, TWO_WORKERS
from pod_faults import RunningTraining, evict, exhaust_memory, trained_steps
from real_cluster import Namespace, make_pod, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import QUEUE_LABEL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}
EVERY = 20  # training steps between two saves


@pytest.mark.parametrize(
    ("kind", "events"), [("tfjob", ("out of memory", "preempted")), ("jobset", ("deleted", "evicted"))], indirect=["kind"]
)
def test_what_happens_to_pods_costs_no_training(installation, kind, events):
    """A worker is lost or the job is preempted, and then the step is deleted.

    Each event with one kind of job: test_jobs and test_queues have all with both.
    """
    namespace, pods, logs = installation.namespace, [], []

    def strike(step, pod):
        if step.name != "Trainer":
            return
        pods.append(pod)
        if len(pods) > 1:
            return
        training = RunningTraining(namespace, kind, pod)
        chief = wait_for_saves(training)
        for event in events:
            bring_about(event, training)
            chief = wait_for_saves(training, chief)
        wait_until(lambda: len(steps_after("continues", namespace.log(pod))) >= len(events))
        logs.append(namespace.log(pod))
        uids = {each.metadata.uid for each in training.pods()}
        namespace.delete_pod(pod, grace_seconds=30)
        wait_until(lambda: not uids & {each.metadata.uid for each in namespace.pods()})

    parameters = {**TWO_WORKERS, "epochs": 50, "save_checkpoints_secs": 0, "save_checkpoints_steps": EVERY}
    with queue(namespace, QUEUE, "memory", "4Gi"):  # two workers of 2 GiB
        run = installation.run_and_strike(kind.name, *TRAIN_ONLY, "transform", "queue", strike=strike, **parameters)
    assert pods == installation.steps.pods["Trainer"][-2:]
    (log,) = logs
    assert ("; restart 1 of" in log) == (kind.name == "tfjob"), "JobSet restarts by itself"
    preempted = re.search(f"waits in queue {QUEUE}: .*Preempted to accommodate a workload", log)
    assert bool(preempted) == ("preempted" in events)
    # A pod has time to save, unless the kernel kills it: training continues after a
    # step that is not saved anyway. One may be so by chance, and the last line of a
    # removed pod may be lost.
    saved = steps_after("saved", log)
    continued = dict(zip(events, steps_after("continues", log), strict=True))
    periodic = {event for event, step in continued.items() if step % EVERY == 0 and step not in saved}
    assert "out of memory" in periodic or "out of memory" not in events, f"{continued}, saved {saved}:\n{log}"
    assert len(periodic - {"out of memory"}) <= 1, f"{continued}, saved {saved}:\n{log}"
    second = run.logs["Trainer"]
    assert f"created {kind.title}" in second, "the first step has removed its own"
    assert "continues after training step" in second


def wait_for_saves(training: RunningTraining, before: str = "") -> str:
    """Returns the uid of the chief's pod once it has trained for at least two saves.

    Args:
      training: The training.
      before: Uid of the chief's pod that does not count.
    """

    def find() -> str | None:
        for pod in training.pods("chief"):
            if pod.metadata.uid != before and trained_steps(training.namespace.log(pod.metadata.name)) >= 2 * EVERY:
                return str(pod.metadata.uid)
        return None

    uid: str = wait_until(find, 180)
    return uid


def steps_after(word: str, log: str) -> list[int]:
    """Returns the steps after which a training `saved` or `continues`."""
    return [int(step) for step in re.findall(rf"{word} after training step (\d+)", log)]


def bring_about(event: str, training: RunningTraining) -> None:
    if event == "preempted":
        training.namespace.apply(urgent_job(training.namespace))
        return
    worker = training.running("worker").metadata.name
    if event == "deleted":
        training.namespace.delete_pod(worker, grace_seconds=30)
    elif event == "evicted":
        evict(training.namespace, worker)
    else:
        exhaust_memory(training.namespace, worker)


def urgent_job(namespace: Namespace) -> dict:
    """Returns a Job that takes the place of others in the queue for a moment."""
    pod = make_pod("urgent", namespace.image, ["sleep", "2"])
    pod["spec"]["containers"][0]["resources"] = {"requests": {"memory": "1Gi"}}
    labels = {QUEUE_LABEL: QUEUE, PRIORITY_LABEL: namespace.name}
    metadata = {"generateName": "urgent-", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod["spec"]}}}

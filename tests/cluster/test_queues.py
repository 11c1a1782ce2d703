"""Tests jobs that wait in queues of the real Kueue, with their launcher."""

import functools
import uuid

import pytest
from cluster_queues import GROUP, PRIORITY_LABEL, VERSION, local_queue, queue
from real_cluster import wait_until

from tfx_distribute.components.launchers.kubernetes import queue_wait, queues, refusals
from tfx_distribute.components.launchers.kubernetes.launcher import JOB_KINDS
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ONE_CPU = {"resources": {"requests": {"cpu": "100m"}}}  # of the two CPUs of the queue, each of which is 100m


@pytest.fixture(scope="module", autouse=True)
def team(namespace):
    """Provides a queue with room for two pods."""
    with queue(namespace, "team", "cpu", "200m"):
        yield


@pytest.fixture
def start(namespace, start_job, monkeypatch):
    """Returns a function that starts a job of each kind in the queue."""
    monkeypatch.setattr(queue_wait, "WORKLOADS_SECONDS", 1.0)
    monkeypatch.setattr(refusals, "FINAL_SECONDS", 10.0)
    wait_until(lambda: not namespace.pods())  # those of the test before
    return functools.partial(start_job, **{"queue": "team", **ONE_CPU})


def until(file):
    return f"while ! test -e {file}; do sleep 0.2; done"


@pytest.fixture
def file():
    return f"/shared/{uuid.uuid4().hex}"


def test_a_job_waits_until_there_is_room(start, file, caplog):
    caplog.set_level("INFO", logger="absl")
    first = start(until(file), of=JOB_KINDS["jobset"])
    first.wait_for_running()
    second = start("exit 0", workers=2, max_restarts=0)
    words = f"{second.kind.title} {second.name} waits in queue team: couldn't assign flavors to pod set"
    wait_until(lambda: words in caplog.text)
    assert "insufficient unused quota for cpu" in caplog.text
    assert f"{second.kind.title} {second.name}: Suspended: it waits to be admitted" in caplog.text
    assert second.is_running
    first.touch(file)
    assert (first.wait(), second.wait()) == (None, None)


def test_a_job_that_is_preempted_goes_on_later(start, namespace, file, caplog, monkeypatch):
    """It uses up no restart: it has none."""
    monkeypatch.setattr(queue_wait, "WORKLOADS_SECONDS", 300.0)  # by the second look, it might run again
    caplog.set_level("INFO", logger="absl")
    job = start(f"echo starts; {until(file)}", workers=2, max_restarts=0)
    job.wait_for_running(2)
    urgent = start("sleep 5", of=JOB_KINDS["jobset"], labels={PRIORITY_LABEL: namespace.name}, workers=2)
    wait_until(
        lambda: f"{job.kind.title} {job.name} waits in queue team: Preempted to accommodate a workload" in caplog.text
    )
    assert urgent.wait() is None
    job.wait_for_running(2)
    job.touch(file)
    assert job.wait() is None
    assert caplog.text.count("chief: starts") == 2


def test_a_job_that_never_fits(start, caplog):
    job = start("exit 0", workers=3)
    wait_until(lambda: "maximum capacity" in caplog.text)
    assert job.is_running, "it goes on for a while"
    error = job.wait(60)
    assert isinstance(error, TrainingError)
    assert str(error).endswith(
        "; ask for smaller or fewer machines in resources, or have the quota of the ClusterQueue raised"
    )
    wait_until(lambda: not job.job)


def test_machines_that_the_queue_does_not_have(start, namespace):
    """As with a queue of spot machines only, which a job does not tolerate."""
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}

    def set_taints(taints):
        flavor = (GROUP, VERSION, "resourceflavors", namespace.name)
        namespace.custom.patch_cluster_custom_object(*flavor, {"spec": {"nodeTaints": taints}})

    set_taints([taint])
    try:
        job = start("exit 0")
        error = job.wait(60)
    finally:
        set_taints([])
    assert isinstance(error, TrainingError)
    assert "untolerated taint" in str(error)
    assert str(error).endswith("; write another accelerator, node_selector or tolerations in resources, or another queue")
    wait_until(lambda: not job.job)


def test_a_priority_class_that_does_not_exist(start):
    """Kueue says nothing at all."""
    job = start("exit 0", labels={PRIORITY_LABEL: "nobody"})
    error = job.wait(60)
    assert isinstance(error, TrainingError)
    assert "Kueue has made no Workload for it; see whether the WorkloadPriorityClass in its labels exists" in str(error)
    wait_until(lambda: not job.job)


def test_a_workload_that_is_deactivated(start, namespace, caplog):
    job = start("sleep 300")
    job.wait_for_running()
    selector = f"{queues.JOB_UID_LABEL}={job.job['metadata']['uid']}"
    resource = (GROUP, VERSION, namespace.name, "workloads")
    (workload,) = namespace.custom.list_namespaced_custom_object(*resource, label_selector=selector)["items"]
    name = workload["metadata"]["name"]
    namespace.custom.patch_namespaced_custom_object(*resource, name, {"spec": {"active": False}})
    error = job.wait(60)
    assert isinstance(error, TrainingError)
    assert f"set spec.active of Workload {name} to true" in str(error)


def test_a_queue_that_does_not_exist(start, namespace):
    job = start("exit 0", queue="nobody")
    error = job.wait(60)
    assert isinstance(error, ConfigurationError)
    assert str(error) == (f"targets.kubeflow.queue: namespace {namespace.name} has no LocalQueue nobody; write one of team")
    assert not job.job


def test_a_queue_of_no_cluster_queue(start, namespace):
    with local_queue(namespace, "lost", "nobody"):
        error = start("exit 0", queue="lost").wait(60)
    assert isinstance(error, ConfigurationError)
    assert str(error).endswith("LocalQueue lost belongs to ClusterQueue nobody, which does not exist; have it created")


def test_a_cluster_without_kueue(start, monkeypatch):
    monkeypatch.setattr(queues, "GROUP", "kueue.example.com")
    error = start("exit 0").wait(60)
    assert isinstance(error, ConfigurationError)
    assert "the cluster does not have Kueue" in str(error)

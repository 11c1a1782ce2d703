"""Tests what the step does about pods that are refused or missing, in a fake cluster.

The operator looks at none of the running ones while it cannot create others.
"""

import time
import uuid

import pytest
from running import wait_until
from tfjobs import LIST_EVENTS, NAME, NAMESPACE, NEEDED, condition, exists, follow, pod, start, status, tfjob

from tfx_distribute.components.launchers.kubernetes import refusals
from tfx_distribute.components.launchers.kubernetes.missing_pods import MissingPods
from tfx_distribute.components.launchers.kubernetes.pod_history import PodHistory
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution


def test_an_operator_that_does_not_run(api):
    error = follow().wait()
    assert isinstance(error, TrainingError)
    assert str(error).startswith(
        f"TFJob {NAME} has no pods after 3 s, and no event says why; see whether the pods of Kubeflow's"
    )
    assert not exists(api)


@pytest.mark.parametrize(("workers", "which"), [(1, "chief"), (2, "worker 0")])
def test_pods_that_a_gang_scheduler_holds_back(api, caplog, monkeypatch, workers, which):
    """The operator says so with no event, only with a time."""
    monkeypatch.setattr(refusals, "OTHER_SECONDS", 0.0)
    launch = start(api, manifest=tfjob(workers=workers))
    if workers > 1:
        api.set_pod(NAMESPACE, pod())
    api.set_status(NAMESPACE, NAME, status(condition("Created"), lastReconcileTime="2100-01-01T00:00:00Z"))
    words = f"TFJob {NAME} has no pod of {which} after 3 s: Kubeflow's Training Operator waits for a gang scheduler"
    wait_until(lambda: words in caplog.text)
    time.sleep(0.5)
    assert launch.is_running
    assert "no event says why" not in caplog.text
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_pods_that_a_gang_scheduler_held_back_before(api, monkeypatch):
    monkeypatch.setattr(refusals, "OTHER_SECONDS", 0.0)
    launch = start(api, manifest=tfjob(workers=2))
    api.set_status(NAMESPACE, NAME, status(condition("Created"), lastReconcileTime="2026-01-01T00:00:00Z"))
    api.set_pod(NAMESPACE, pod())
    assert "has no pod of worker 0 after 3 s, and no event says why" in str(launch.wait())


def refuse(api, name, job=None):
    message = "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"
    words = f'Error creating: pods "{NAME}-{name}" is forbidden: {message}'
    api.add_event(job or api.get(NAMESPACE, NAME), "FailedCreatePod", words)


def test_a_chief_that_succeeds_while_pods_are_refused(api):
    launch = start(api, manifest=tfjob(workers=2))
    api.set_pod(NAMESPACE, pod() | {"status": {"phase": "Succeeded"}})
    refuse(api, "worker-0")
    assert launch.wait() is None


PARAMETER_SERVER = Distribution("parameter_server", num_workers=1, num_parameter_servers=1)


def test_a_worker_of_parameter_servers_that_is_refused_before_it_ran(api):
    """The chief, which runs, waits for it."""
    launch = start(api, manifest=tfjob(distribution=PARAMETER_SERVER), quota_timeout_seconds=0.3)
    for document in (pod(), pod(name=f"{NAME}-ps-0", replica="ps")):
        api.set_pod(NAMESPACE, document)
    refuse(api, "worker-0")
    assert f'the cluster refuses its pods: pods "{NAME}-worker-0" is forbidden' in str(launch.wait(20))


def test_time_counts_while_a_refused_pod_is_needed(api, jobs):
    job = tfjob(distribution=PARAMETER_SERVER) | {"kind": "TFJob"}
    job["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": NAMESPACE}
    history = PodHistory(jobs)
    missing = MissingPods(jobs, history, quota_timeout_seconds=0.0, say_once=[].append)

    def poll(phase):
        api.set_pod(NAMESPACE, pod() | {"status": {"phase": phase}})
        pods = jobs.list_pods()
        for each in pods:
            history.observe(each)
        missing.observe(job, jobs.kind.read_state(job), pods)

    for role in ("chief", "ps", "worker"):
        api.set_pod(NAMESPACE, pod(name=f"{NAME}-{role}-0", replica=role))
    poll("Running")
    api.remove(NAMESPACE, f"{NAME}-worker-0")
    refuse(api, "worker-0", job)
    for phase in ("Running", "Pending", "Running", "Pending"):
        poll(phase)
    with pytest.raises(TrainingError, match="the cluster refuses its pods"):
        poll("Pending")


def test_an_error_of_a_pod_while_others_are_refused(api):
    launch = start(api, manifest=tfjob(workers=2))
    api.set_pod(NAMESPACE, pod(exit_code=3))
    refuse(api, "worker-0")
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert "ended with exit code 3" in str(error)
    assert not exists(api)


def test_events_that_cannot_be_read_end_no_training(api, caplog):
    launch = start(api, manifest=tfjob(workers=2))
    api.allowed = NEEDED - {LIST_EVENTS}
    wait_until(lambda: "may not list events" in caplog.text)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None

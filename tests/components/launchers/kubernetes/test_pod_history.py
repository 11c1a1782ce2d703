"""Tests what is known about the pods of a job in a fake cluster, without a launcher."""

import pytest
from tfjobs import NAME, NAMESPACE, pod, tfjob

from tfx_distribute.components.launchers.kubernetes.pod_history import PodHistory
from tfx_distribute.trainer_module.job.training_job import Distribution

PENDING, SUCCEEDED = {"phase": "Pending"}, {"phase": "Succeeded"}
FAILED = pod(exit_code=143)["status"]
# Its sidecar has failed.
TRAINED = pod(exit_code=0)["status"]


@pytest.fixture
def history(jobs):
    return PodHistory(jobs)


@pytest.fixture
def poll(api, jobs, history):
    """Returns a function that notes the pods of a TFJob, and returns who is needed."""
    job = tfjob(distribution=Distribution("parameter_server", num_workers=1, num_parameter_servers=1, num_evaluators=1))

    def set_and_observe(**statuses):
        for role, status in statuses.items():
            document = pod(name=f"{NAME}-{role}-0", replica=role)
            api.set_pod(NAMESPACE, document | ({"status": status} if status else {}))
        pods = jobs.list_pods()
        for each in pods:
            history.observe(each)
        return {task.role for task in history.list_needed(job, pods)}

    return set_and_observe


@pytest.fixture
def replace_chief(api):
    """Returns a function that removes the chief's pod, so that the next one is new."""
    return lambda: api.remove(NAMESPACE, f"{NAME}-chief-0")


def test_nobody_waits_for_an_evaluator(poll):
    assert poll() == {"chief", "ps", "worker"}
    assert poll(chief=PENDING, evaluator=PENDING) == {"chief", "ps", "worker"}


def test_a_chief_that_runs_waits_for_a_worker_until_it_has_run(poll):
    assert poll(chief=None, ps=None, worker=PENDING) == {"chief", "ps", "worker"}
    assert poll(worker=None) == {"chief", "ps"}
    assert poll(worker=PENDING) == {"chief", "ps"}
    assert poll(chief=PENDING) == {"chief", "ps", "worker"}


@pytest.mark.parametrize(("chief", "worker"), [(PENDING, None), (PENDING, FAILED), (None, FAILED)])
def test_a_new_chief_waits_for_a_worker_that_has_lost_the_one_before(poll, replace_chief, chief, worker):
    assert "worker" not in poll(chief=None, ps=None, worker=None)
    replace_chief()
    poll(chief=chief, worker=worker)
    assert "worker" in poll(chief=None, worker=PENDING)


def test_a_new_chief_meets_a_worker_that_still_runs(poll, replace_chief):
    poll(chief=None, ps=None, worker=None)
    replace_chief()
    poll(chief=None)
    poll()
    assert "worker" not in poll(worker=PENDING)


def test_a_suspension_ends_all_workers(poll, history):
    assert "worker" not in poll(chief=None, worker=None)
    history.forget_latest()
    assert "worker" in poll(worker=PENDING)


@pytest.mark.parametrize("status", [SUCCEEDED, TRAINED])
def test_a_chief_that_has_trained_needs_nobody(poll, status):
    assert poll(chief=None, worker=PENDING)
    assert not poll(chief=status)

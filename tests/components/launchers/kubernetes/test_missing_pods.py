"""Tests what the step does about pods that are refused or missing, in a fake cluster.

The operator looks at none of the running ones while it cannot create others.
"""

import time

from running import wait_until
from tfjobs import LIST_EVENTS, NAME, NAMESPACE, NEEDED, condition, exists, follow, pod, start, status, tfjob

from tfx_distribute.trainer_module.errors import TrainingError


def test_an_operator_that_does_not_run(api):
    error = follow().wait()
    assert isinstance(error, TrainingError)
    assert str(error).startswith(
        f"TFJob {NAME} has no pods after 3 s, and no event says why; see whether the pods of Kubeflow's"
    )
    assert not exists(api)


def test_pods_that_a_gang_scheduler_holds_back(api, caplog):
    manifest = tfjob()
    manifest["spec"]["runPolicy"]["schedulingPolicy"] = {"minAvailable": 1}
    launch = start(api, manifest=manifest)
    wait_until(lambda: "has no pods after 3 s" in caplog.text)
    time.sleep(0.5)
    assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def refuse(api, name, message="exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"):
    job = api.get(NAMESPACE, NAME)
    api.add_event(job, "FailedCreatePod", f'Error creating: pods "{NAME}-{name}" is forbidden: {message}')


def test_a_chief_that_succeeds_while_pods_are_refused(api):
    launch = start(api, manifest=tfjob(workers=2))
    api.set_pod(NAMESPACE, pod() | {"status": {"phase": "Succeeded"}})
    refuse(api, "worker-0")
    assert launch.wait() is None


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

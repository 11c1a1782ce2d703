"""Lets something happen to a TFJob in a fake cluster, and checks what the step does."""

import threading
import time

import pytest
from running import wait_until
from tfjobs import NAME, NAMESPACE, NEEDED, condition, exists, pod, start, status, tfjob, wait_until_seen

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.errors import NoAnswerError
from tfx_distribute.components.launchers.kubernetes import pods, refusals, watcher
from tfx_distribute.components.launchers.kubernetes.client import JobClient
from tfx_distribute.components.launchers.kubernetes.job_kind import KEPT_SECONDS, Owner
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.lifecycle.saved_step import SavedStep


def cut_before(request, api, seconds, monkeypatch):
    """Makes the cluster unreachable before the launcher's next request of a kind."""
    send = getattr(JobClient, request)
    is_cut = threading.Event()

    def cut_and_send(jobs):
        if not is_cut.is_set():
            api.unreachable(seconds)
            is_cut.set()
        return send(jobs)

    monkeypatch.setattr(JobClient, request, cut_and_send)
    assert is_cut.wait(20)


def test_created_running_succeeded(api):
    launch = start(api, manifest=tfjob(owner=Owner("step", "a-uid")))
    (job,) = api.objects("tfjobs")
    assert job["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "a-uid"}]
    assert job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == KEPT_SECONDS
    for conditions in ([], [condition("Created")], [condition("Created"), condition("Running")]):
        api.set_status(NAMESPACE, NAME, status(*conditions, Chief={"active": 1}))
        time.sleep(0.3)
        assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Succeeded"), Chief={"succeeded": 1}))
    assert launch.wait() is None
    assert exists(api), "it stays for people to look at"


def test_suspended_waits(api):
    launch = start(api)
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Suspended")))
    time.sleep(0.5)
    assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Created"), condition("Succeeded")))
    assert launch.wait() is None


def test_succeeded_though_another_replica_failed_meanwhile(api):
    launch = start(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded"), condition("Failed")))
    assert launch.wait() is None


def test_a_job_whose_pods_were_taken_away_is_created_again(api):
    """The operator gives up the whole job in this case."""
    launch = start(api)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_a_job_is_replaced_though_the_api_does_not_answer_at_first(api):
    launch = start(api)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.fail(503, verb="delete")
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def with_proxy(pod, state, phase):
    """Adds a sidecar in a state to a pod, and sets the phase that results from it."""
    proxy = {"name": "a-proxy", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": state}
    pod["status"]["containerStatuses"].append(proxy)
    pod["status"]["phase"] = phase
    return pod


@pytest.mark.parametrize(("exit_code", "is_error"), [(0, False), (143, True)])
def test_a_pod_that_a_sidecar_keeps_running(api, caplog, exit_code, is_error):
    """Neither controller sees that the training in it has ended."""
    launch = start(api)
    api.set_pod(NAMESPACE, with_proxy(pod(exit_code=exit_code), {"running": {}}, "Running"))
    api.set_status(NAMESPACE, NAME, status(condition("Running"), Chief={"active": 1}))
    error = launch.wait()
    assert isinstance(error, TrainingError) if is_error else error is None
    assert f"exit code {exit_code}, but its container a-proxy" in (str(error) if is_error else caplog.text)
    assert not exists(api)


def test_a_sidecar_that_fails_after_the_training(api):
    """The pod has failed, although there is a model."""
    launch = start(api)
    terminated = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:02Z"}
    api.set_pod(NAMESPACE, with_proxy(pod(exit_code=0), {"terminated": terminated}, "Failed"))
    api.set_status(NAMESPACE, NAME, status(condition("Running")))
    assert launch.wait() is None


def test_a_process_that_fails_after_the_chief_has_succeeded(api):
    """Whichever of their pods is listed first."""
    launch = start(api)
    failed = pod(name="digits-1-a-worker-0", uid="0", exit_code=1, replica="worker")
    api.set_pod(NAMESPACE, with_proxy(failed, {"running": {}}, "Running"))
    api.set_pod(NAMESPACE, with_proxy(pod(exit_code=0), {"running": {}}, "Running"))
    api.set_status(NAMESPACE, NAME, status(condition("Running")))
    assert launch.wait() is None


def test_a_chief_that_succeeds_while_the_operator_is_away(api):
    launch = start(api)
    api.set_pod(NAMESPACE, pod() | {"status": {"phase": "Succeeded"}})
    api.set_status(NAMESPACE, NAME, status(condition("Running"), Chief={"active": 1}))
    assert launch.wait(20) is None
    assert not exists(api), "otherwise it would be running for ever"


def test_a_chief_that_fails_while_the_operator_is_away(api, monkeypatch):
    """Another attempt might succeed, but the controller does not start one."""
    monkeypatch.setattr(refusals, "OTHER_SECONDS", 1.0)
    launch = start(api, manifest=tfjob(workers=2))
    api.set_status(NAMESPACE, NAME, status(condition("Running"), Chief={"active": 1}))
    api.set_pod(NAMESPACE, pod(exit_code=138))
    time.sleep(1.5)
    assert launch.is_running, "the operator cannot create the worker, and looks at no other pod until then"
    api.set_pod(NAMESPACE, pod(name=f"{NAME}-worker-0", replica="worker"))
    error = launch.wait(20)
    assert isinstance(error, TrainingError)
    assert str(error).startswith(
        f"TFJob {NAME}: pod {NAME}-chief-0 ended with exit code 138 (Error), and Kubeflow's Training Operator has not "
        "reacted for 1 s; see whether the pods of Kubeflow's Training Operator run, usually in namespace kubeflow"
    )
    assert not exists(api)


def test_a_final_failure_that_the_operator_does_not_see(api):
    launch = start(api)
    api.set_status(NAMESPACE, NAME, status(condition("Running", message="TFJob is running."), Chief={"active": 1}))
    api.set_pod(NAMESPACE, pod(exit_code=1))
    assert str(launch.wait(20)).startswith(f"TFJob {NAME} failed\npod {NAME}-chief-0 ended with exit code 1 (Error)")


def with_init(document, state, phase):
    """Adds an init container in a state to a pod, and sets the phase that results."""
    login = {"name": "login", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": state}
    document["status"] = {"phase": phase, "initContainerStatuses": [login]}
    document["spec"] = {"containers": [{"name": "tensorflow"}], "initContainers": [{"name": "login"}]}
    return document


def test_an_init_container_that_fails_while_the_operator_is_away(api, tmp_path, monkeypatch):
    monkeypatch.setattr(refusals, "OTHER_SECONDS", 0.5)
    launch = start(api)
    terminated = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:01Z"}
    document = with_init(pod(), {"terminated": terminated}, "Failed")
    document["spec"]["containers"] = []  # whose log the cluster does not have
    api.set_pod(NAMESPACE, document)
    (tmp_path / "log").write_text("2026-01-01T00:00:00.000000000Z all tokens at once\n")
    api.logs[(NAMESPACE, f"{NAME}-chief-0")] = tmp_path / "log"
    error = str(launch.wait(20))
    assert "failed: its init container login ended with exit code 137 (OOMKilled), and Kubeflow's" in error
    assert error.endswith("a smaller per_replica_batch_size\n  all tokens at once")


def test_an_init_container_that_fails(api, tmp_path):
    launch = start(api, max_restarts=0)
    terminated = {"exitCode": 7, "reason": "Error", "finishedAt": "2026-01-01T00:00:01Z"}
    (tmp_path / "log").write_text("2026-01-01T00:00:00.000000000Z no token\n")
    api.logs[(NAMESPACE, f"{NAME}-chief-0")] = tmp_path / "log"
    api.set_pod(NAMESPACE, with_init(pod(), {"terminated": terminated}, "Failed"))
    wait_until_seen(api)
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    assert f"pod {NAME}-chief-0 failed: its init container login ended with exit code 7 (Error)\n  no token" in str(
        launch.wait()
    )


def test_an_init_container_whose_pod_is_gone_before_anybody_sees_that_it_has_failed(api):
    launch = start(api, max_restarts=0)
    api.set_pod(NAMESPACE, with_init(pod(), {"waiting": {"reason": "PodInitializing"}}, "Pending"))
    wait_until_seen(api)
    api.remove(NAMESPACE, f"{NAME}-chief-0")
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    assert f"pod {NAME}-chief-0 did not get past its init container login" in str(launch.wait())


def test_a_job_whose_pod_stays_on_a_lost_node(api, monkeypatch, caplog):
    monkeypatch.setattr(retry, "TIMEOUT_SECONDS", 3.0)
    monkeypatch.setattr(pods, "REMOVAL_SECONDS", 0.0)
    launch = start(api)
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "name": NAME,
        "uid": api.get(NAMESPACE, NAME)["metadata"]["uid"],
    }
    document = pod()
    document["metadata"]["ownerReferences"] = [owner]
    document["spec"]["nodeName"] = "node-3"
    api.set_pod(NAMESPACE, document)
    wait_until_seen(api)
    api.delete(NAMESPACE, f"{NAME}-chief-0", "pods")  # as for any node that does not answer
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    error = launch.wait()
    assert isinstance(error, TrainingError)
    words = f"pod {NAME}-chief-0 is still being removed from node node-3, which may be lost"
    assert f"TFJob {NAME} has ended, and cannot be created again: 3 s after its deletion it is still there; {words}" in str(
        error
    )
    assert str(error).endswith("`kubectl delete node node-3`")
    assert caplog.text.count(words) == 1


def test_only_the_last_pods_that_are_gone_are_remembered(api, jobs, monkeypatch):
    """Spot machines may be taken away any number of times."""
    monkeypatch.setattr(watcher, "MOST_GONE_PODS", 2)
    watched = watcher.Watcher(jobs, tfjob(), watcher.Limits(max_restarts=0))
    uids = []
    for _ in range(5):
        api.set_pod(NAMESPACE, pod())
        (listed,) = jobs.list_pods()
        uids.append(listed.metadata.uid)
        watched._observe_all(tfjob(), [listed])
        api.remove(NAMESPACE, f"{NAME}-chief-0")
    assert list(watched._pods) == uids[-3:], "the last one was still there"


def test_deleted_by_somebody(api):
    launch = start(api)
    api.delete(NAMESPACE, NAME)
    error = launch.wait()
    assert isinstance(error, TrainingError)
    assert str(error) == f"TFJob {NAME} is gone: somebody has deleted it while it was training"


def test_api_server_that_does_not_serve_the_resource_for_a_while(api):
    """It answers "404 page not found", as while the CRD is being replaced."""
    launch = start(api)
    api.installed = False
    time.sleep(0.5)
    assert launch.is_running
    api.installed = True
    assert exists(api), "nobody has deleted it"
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_a_resource_that_is_not_served_when_a_job_is_created_again(api):
    launch = start(api)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.fail(404, times=3, verb="create")
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_api_server_gone_for_a_while(api):
    launch = start(api)
    api.set_pod(NAMESPACE, pod())
    api.unreachable(2.0)
    api.fail(503, times=3)
    time.sleep(0.3)
    assert launch.is_running
    time.sleep(2.5)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_api_server_that_refuses_everybody_for_a_while(api):
    """As one that starts again and has not read all accounts and roles."""
    launch = start(api)
    allowed = api.allowed
    for refuse_all in (lambda: setattr(api, "allowed", frozenset()), lambda: api.fail(401, times=6)):
        refuse_all()
        time.sleep(0.5)
        api.allowed = allowed
        assert launch.is_running
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_api_server_gone_for_good(api, monkeypatch):
    monkeypatch.setattr(retry, "TIMEOUT_SECONDS", 1.0)
    launch = start(api)
    api.unreachable(60)
    error = launch.wait()
    assert isinstance(error, NoAnswerError)
    assert str(error).startswith("the Kubernetes API server did not answer for 1 s; the last error: ")


def test_logs_continue_where_the_connection_was_lost(api, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    launch = start(api)
    api.set_pod(NAMESPACE, pod() | {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}})
    api.logs[(NAMESPACE, f"{NAME}-chief-0")] = tmp_path / "log"
    with (tmp_path / "log").open("w") as log:
        for number in range(1, 9):
            log.write(f"2026-01-01T00:00:0{number}.000000000Z line {number}\n")
            log.flush()
            wait_until(lambda number=number: f"chief: line {number}" in caplog.text)
            if number == 3:
                api.drop_watches()
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("chief: line")]
    assert lines == [f"chief: line {number}" for number in range(1, 9)]


def test_takes_too_long(api):
    launch = start(api, deadline_seconds=1)
    api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": "2026-01-01T00:00:00Z"})
    error = launch.wait()
    assert str(error) == f"TFJob {NAME} takes longer than active_deadline_seconds"
    assert not exists(api)


def test_time_counts_from_when_the_operator_starts_a_job(api):
    """Counts by our own clock: the cluster's may differ by hours."""
    launch = start(api, deadline_seconds=2)
    suspended = status(condition("Created"), condition("Suspended"))
    running = status(condition("Created"), condition("Running"))
    for queued in (status(condition("Created")), suspended):
        api.set_status(NAMESPACE, NAME, queued)
        time.sleep(1.1)
    api.set_status(NAMESPACE, NAME, running | {"startTime": "2026-01-01T00:00:00Z"})
    wait_until_seen(api)
    api.set_status(NAMESPACE, NAME, suspended | {"startTime": "2026-01-01T00:00:00Z"})
    time.sleep(2.1)
    api.set_status(NAMESPACE, NAME, running | {"startTime": "2026-01-01T00:00:02Z"})
    wait_until_seen(api)
    assert str(launch.wait()) == f"TFJob {NAME} takes longer than active_deadline_seconds"


@pytest.mark.parametrize("request_", ["get", "list_pods"])
def test_time_of_a_job_does_not_count_for_its_replacement(api, request_, monkeypatch):
    launch = start(api, deadline_seconds=4)
    first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
    api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": "2026-01-01T00:00:00Z"})
    wait_until_seen(api)
    cut_before(request_, api, 4.5, monkeypatch)  # so that the launcher sees the end first, after the deadline
    api.set_pod(NAMESPACE, pod(exit_code=143))
    api.set_status(NAMESPACE, NAME, status(condition("Failed")) | {"startTime": "2026-01-01T00:00:00Z"})
    wait_until(lambda: exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
    wait_until_seen(api)
    api.set_status(NAMESPACE, NAME, status(condition("Succeeded")))
    assert launch.wait() is None


def test_restarts_before_a_suspension_count(api):
    """Nobody has to see the suspension: the time of the start has changed."""
    launch = start(api, max_restarts=1)

    def start_at(when):
        api.set_status(NAMESPACE, NAME, status(condition("Running")) | {"startTime": f"2026-01-01T00:00:0{when}Z"})
        wait_until_seen(api)

    def replace_pod():
        api.delete(NAMESPACE, f"{NAME}-chief-0", "pods")
        api.set_pod(NAMESPACE, pod())

    start_at(0)
    api.set_pod(NAMESPACE, pod())
    wait_until_seen(api)
    replace_pod()
    wait_until_seen(api)
    start_at(5)
    replace_pod()
    wait_until_seen(api)
    replace_pod()
    assert str(launch.wait()).endswith("All 1 restarts (max_restarts) are used up")


@pytest.mark.parametrize("is_job_lost", [False, True])
def test_restarts_after_progress_do_not_add_up(api, is_job_lost):
    """A week on spot machines has more preemptions than `max_restarts`."""
    steps = [0]
    launch = start(api, max_restarts=1, read_step=lambda: SavedStep(steps[-1]))

    def preempt():
        if is_job_lost:  # the operator gives up a job whose pod is deleted
            first = api.get(NAMESPACE, NAME)["metadata"]["uid"]
            api.set_pod(NAMESPACE, pod(exit_code=143))
            api.set_status(NAMESPACE, NAME, status(condition("Failed", message="a pod is gone")))
            wait_until(
                lambda: not launch.is_running or (exists(api) and api.get(NAMESPACE, NAME)["metadata"]["uid"] != first)
            )
        api.delete(NAMESPACE, f"{NAME}-chief-0", "pods")
        api.set_pod(NAMESPACE, pod())
        wait_until_seen(api, launch)

    api.set_pod(NAMESPACE, pod())
    wait_until_seen(api)
    for _ in range(4):
        steps.append(steps[-1] + 100)
        preempt()
    assert launch.is_running
    preempt()
    assert str(launch.wait()).endswith("All 1 restarts (max_restarts) are used up")


def test_a_lasting_refusal_while_it_follows_removes_the_job(api, monkeypatch):
    monkeypatch.setattr(retry, "TIMEOUT_SECONDS", 1.0)
    launch = start(api)
    api.allowed = NEEDED - {("", "pods", "list")}
    error = launch.wait()
    assert isinstance(error, ConfigurationError)
    assert "may not run a TFJob in namespace" in str(error)
    assert not exists(api), "nobody follows it any more"

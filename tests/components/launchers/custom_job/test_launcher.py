"""Tests the CustomJob launcher against a fake of Vertex AI, through the real SDK."""

import functools
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from google.rpc import code_pb2
from running import wait_until
from vertex_api import VertexApi
from vertex_pools import Options

from tfx_distribute.components.launchers import retry, storage
from tfx_distribute.components.launchers.custom_job import client as custom_job_client
from tfx_distribute.components.launchers.custom_job import error_file as error_file_lib
from tfx_distribute.components.launchers.custom_job import launcher as custom_job_launcher
from tfx_distribute.components.launchers.custom_job import spec as custom_job_spec
from tfx_distribute.components.launchers.custom_job.spec import CustomJobSettings
from tfx_distribute.components.launchers.errors import NoRoomError
from tfx_distribute.components.launchers.restart_budget import RestartBudget
from tfx_distribute.components.launchers.sigterm import TerminatedError
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.lifecycle import atomic_files
from tfx_distribute.trainer_module.lifecycle.failure_report import Failure
from tfx_distribute.trainer_module.lifecycle.saved_step import SavedStep

SETTINGS = CustomJobSettings(
    name="digits",
    project="project",
    location="us-central1",
    image="image",
    worker={"machine_type": "n1-standard-4"},
    parameter_server={"machine_type": "n1-standard-4"},
)
OPTIONS = Options(worker_restarts=0, job_restarts=0, grace=0.5)  # our exit codes end a job at once


@pytest.fixture
def api(tmp_path, monkeypatch):
    for module, name, value in (
        (custom_job_launcher, "POLL_SECONDS", 0.1),
        (custom_job_launcher, "ERROR_SECONDS", 3.0),
        (error_file_lib, "PAUSE_SECONDS", 0.2),
        (storage, "TIMEOUT_SECONDS", 1.0),
        (custom_job_client, "CANCEL_SECONDS", 2.0),
        (retry, "RETRY_SECONDS", 0.1),
        (retry, "TIMEOUT_SECONDS", 5.0),
    ):
        monkeypatch.setattr(module, name, value)
    (tmp_path / "jobs").mkdir()
    with VertexApi(tmp_path / "jobs", OPTIONS) as server, server.connected():
        yield server


@pytest.fixture
def error_file(tmp_path) -> str:
    return str(tmp_path / "error.json")


def make_spec(script: str = "pass", workers: int = 1) -> dict:
    """Returns a CustomJob whose processes run a Python script."""
    distribution = Distribution("multi_worker_mirrored", num_workers=workers)
    spec = custom_job_spec.make_spec("digits-1", "gs://b/job.json", distribution, {}, SETTINGS)
    for pool in spec["job_spec"]["worker_pool_specs"]:
        pool["container_spec"] |= {"command": ["python", "-c", script]}
    return spec


def launch(
    error_file: str,
    script: str = "pass",
    workers: int = 1,
    max_restarts: int = 0,
    has_result: bool = False,
    read_step: Callable[[], SavedStep] = SavedStep,
) -> None:
    restarts = RestartBudget(max_restarts, read_step)
    custom_job_launcher.launch(make_spec(script, workers), SETTINGS, restarts, error_file, has_result=has_result)


class Launch:
    """The launcher in a separate thread, and how it ended."""

    def __init__(self, *arguments, **options):
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(arguments, options), daemon=True)
        self._thread.start()

    def _run(self, arguments, options):
        try:
            launch(*arguments, **options)
        except BaseException as error:
            self.error = error

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> BaseException | None:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the launcher does not end"
        return self.error


def jobs(api: VertexApi) -> list:
    return api.all("customJobs")


def plan(api: VertexApi, *states: str, error: str = "") -> None:
    """Sets the states of the next job, which then do not follow its processes."""
    api.plan(*(f"JOB_STATE_{state}" for state in states), error=error)


def wait_for_job(api: VertexApi) -> str:
    wait_until(lambda: jobs(api))
    return jobs(api)[0].name


def test_a_job_that_succeeds(api, error_file, caplog):
    caplog.set_level("INFO", logger="absl")
    launch(error_file, workers=2)
    (job,) = jobs(api)
    assert job.labels[custom_job_spec.TRAINING_LABEL] == "digits-1"
    number = job.name.rpartition("/")[2]
    address = f"https://console.cloud.google.com/vertex-ai/locations/us-central1/training/{number}?project=project"
    assert address in caplog.text
    assert f"CustomJob {job.name}: succeeded" in caplog.text


def test_each_new_state_is_logged(api, error_file, caplog):
    caplog.set_level("INFO", logger="absl")
    plan(api, "QUEUED", "PENDING", "RUNNING", "PENDING", "RUNNING", "SUCCEEDED")
    launch(error_file)
    states = [line.rpartition(": ")[2] for line in caplog.text.splitlines() if "CustomJob projects/" in line]
    assert states[-6:] == ["queued", "pending", "running", "pending", "running", "succeeded"]


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (
            "FAILED",
            "The replica workerpool0-0 exited with a non-zero status of 1.",
            "failed: The replica workerpool0-0 exited",
        ),
        ("FAILED", "The image could not be pulled.", "failed: The image could not be pulled."),
        ("CANCELLED", "", "was cancelled: by somebody"),
        ("CANCELLED", "It has run for longer than its timeout.", "was cancelled: It has run for longer than its timeout."),
        ("EXPIRED", "", "has waited, or run, for longer than allowed"),
    ],
)
def test_a_job_that_ends_badly(api, error_file, state, error, message):
    plan(api, "RUNNING", state, error=error)
    with pytest.raises(TrainingError) as raised:
        launch(error_file, max_restarts=3)
    assert message in str(raised.value)
    assert "its logs: https://console.cloud.google.com/logs/viewer?project=project&resource=ml_job%2Fjob_id%2F" in str(
        raised.value
    )
    assert len(jobs(api)) == 1


def test_a_job_that_may_succeed_the_next_time_is_created_again(api, error_file, tmp_path):
    marker = tmp_path / "tried"
    # A process that has lost a peer exits with 138.
    path = f"pathlib.Path({str(marker)!r})"
    script = f"import pathlib, sys; retried = {path}.exists(); {path}.touch(); sys.exit(0 if retried else 138)"
    launch(error_file, script, max_restarts=1)
    assert [job.state.name for job in sorted(jobs(api), key=lambda job: job.create_time)] == [
        "JOB_STATE_FAILED",
        "JOB_STATE_SUCCEEDED",
    ]


def test_restarts_after_progress_do_not_add_up(api, error_file, tmp_path):
    tries = tmp_path / "tries"
    script = (
        f"import sys; open({str(tries)!r}, 'a').write('x'); sys.exit(0 if len(open({str(tries)!r}).read()) > 3 else 138)"
    )
    launch(error_file, script, max_restarts=1, read_step=lambda: SavedStep(len(tries.read_text()) if tries.exists() else 0))
    assert len(jobs(api)) == 4


def test_restarts_are_counted(api, error_file):
    with pytest.raises(TrainingError, match=r"(?s)non-zero status of 138.*All 1 restarts \(max_restarts\) are used up"):
        launch(error_file, "import sys; sys.exit(138)", max_restarts=1)
    assert len(jobs(api)) == 2


def test_a_final_failure_ends_the_job_at_once(api, error_file):
    """Otherwise the service would restart the process several times."""
    background = Launch(error_file, "import time; time.sleep(60)", max_restarts=3)
    wait_until(lambda: jobs(api) and jobs(api)[0].state.name == "JOB_STATE_RUNNING")
    Failure("hidden_units: is missing", expected=True, final=False).write(error_file)  # of a peer
    Failure("hidden_units: is not there", expected=True, final=True).write(error_file)
    error = background.wait()
    assert isinstance(error, TrainingError)
    assert "failed: hidden_units: is not there\nits logs: https://" in str(error)
    wait_until(lambda: jobs(api)[0].state.name == "JOB_STATE_CANCELLED")


def test_the_failure_of_an_earlier_attempt_is_removed(api, error_file):
    Failure("no such file", expected=True).write(error_file)
    launch(error_file)
    assert Failure.read(error_file) is None


@pytest.mark.parametrize("status", ["138", "9(SIGKILL)", "6", "134", "11", "139"])
def test_exit_codes_after_which_a_job_is_created_again(api, error_file, status):
    plan(api, "RUNNING", "FAILED", error=f"The replica workerpool1-0 exited with a non-zero status of {status}. To find out")
    launch(error_file, max_restarts=1)
    assert len(jobs(api)) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("Resources are insufficient in region: us-central1. Try a different region or use a different accelerator.", 0),
        ("STOCKOUT", 0),
        ("Internal error occurred for the current attempt", 0),
        ("", code_pb2.UNAVAILABLE),
        ("", 0),
    ],
)
def test_failures_of_the_service_after_which_a_job_is_created_again(api, error_file, error, code):
    api.plan("JOB_STATE_RUNNING", "JOB_STATE_FAILED", error=error, code=code)
    launch(error_file, max_restarts=1)
    assert [job.state.name for job in jobs(api)] == ["JOB_STATE_FAILED", "JOB_STATE_SUCCEEDED"]


def test_the_error_of_a_failed_job_is_waited_for(api, error_file):
    """The service sets it about a minute after the state."""
    api.error_delay = 1.0
    plan(api, "RUNNING", "FAILED", error="The replica workerpool0-0 exited with a non-zero status of 1.")
    with pytest.raises(TrainingError, match="non-zero status of 1"):
        launch(error_file, max_restarts=1)
    assert len(jobs(api)) == 1


STORAGE_FAULTS = [
    tf.errors.UnavailableError(None, None, "Error executing an HTTP request: HTTP response code 503"),
    tf.errors.AbortedError(None, None, "All 10 retry attempts failed."),
    tf.errors.PermissionDeniedError(None, None, "does not have storage.objects.get access"),
    tf.errors.DeadlineExceededError(None, None, "Timeout was reached"),
]


class FailingStorage:
    """Cloud Storage that fails requests for the error file until it is told not to."""

    def __init__(self, monkeypatch, fault: Exception):
        self.fails, self.reads = False, 0
        for name in ("read", "remove"):
            monkeypatch.setattr(atomic_files, name, functools.partial(self._call, getattr(atomic_files, name), fault))

    def _call(self, function, fault, path):
        self.reads += 1
        if self.fails:
            raise fault
        return function(path)


@pytest.mark.parametrize("fault", STORAGE_FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_job_runs_on_while_the_storage_fails(api, error_file, monkeypatch, caplog, fault):
    failing = FailingStorage(monkeypatch, fault)
    background = Launch(error_file, "import time; time.sleep(3)")
    wait_for_job(api)
    failing.fails = True
    assert background.wait() is None
    assert jobs(api)[0].state.name == "JOB_STATE_SUCCEEDED"
    assert caplog.text.count("training goes on") == 1
    assert failing.reads < 15, "the pauses grow"


def test_a_failure_that_was_reported_during_an_outage_of_the_storage_is_found(api, error_file, monkeypatch):
    failing = FailingStorage(monkeypatch, STORAGE_FAULTS[0])
    background = Launch(error_file, "import time; time.sleep(60)", max_restarts=3)
    wait_for_job(api)
    failing.fails = True
    Path(error_file).write_text(json.dumps({"message": "hidden_units: is missing", "expected": True, "final": True}))
    time.sleep(1.0)
    assert not background.ended
    failing.fails = False
    assert "failed: hidden_units: is missing" in str(background.wait())


def test_a_failed_job_whose_error_file_cannot_be_read_is_judged_by_its_error(api, error_file, monkeypatch, caplog):
    failing = FailingStorage(monkeypatch, STORAGE_FAULTS[2])
    plan(api, "RUNNING", "FAILED", error="The replica workerpool0-0 exited with a non-zero status of 1.")
    background = Launch(error_file, max_restarts=1)
    wait_for_job(api)
    failing.fails = True
    error = background.wait()
    assert "non-zero status of 1" in str(error)
    assert "the storage did not answer for 1 s; the last error: does not have storage.objects.get access" in caplog.text


def test_an_error_file_that_cannot_be_removed(api, error_file, monkeypatch):
    failing = FailingStorage(monkeypatch, STORAGE_FAULTS[2])
    failing.fails = True
    with pytest.raises(TrainingError, match=r"cannot remove .*error.json: the storage did .*roles/storage.objectUser"):
        launch(error_file)
    assert not jobs(api)


def test_a_job_runs_on_while_the_service_does_not_accept_the_credentials(api, error_file):
    background = Launch(error_file, "import time; time.sleep(2)")
    wait_for_job(api)
    api.fail(403, times=3, verb="customJobs.get")
    assert background.wait() is None


def test_another_attempt_follows_a_running_job(api, error_file):
    script = "import time; time.sleep(3)"
    first = Launch(error_file, script)
    wait_until(lambda: jobs(api))
    second = Launch(error_file, script)
    assert first.wait() is None
    assert second.wait() is None
    assert len(jobs(api)) == 1


@pytest.mark.parametrize("has_result", [False, True])
def test_another_attempt_after_success(api, error_file, has_result):
    launch(error_file)
    launch(error_file, has_result=has_result)
    assert len(jobs(api)) == (1 if has_result else 2)


def test_nothing_is_trained_again_if_only_the_job_is_gone(api, error_file):
    launch(error_file, has_result=True)
    assert not jobs(api)


def test_a_job_that_still_runs_after_the_result_is_waited_for(api, error_file):
    first = Launch(error_file, "import time; time.sleep(3)")
    name = wait_for_job(api)
    launch(error_file, has_result=True)
    assert api.state(name) == "JOB_STATE_SUCCEEDED"
    assert first.wait() is None
    assert len(jobs(api)) == 1


def test_another_attempt_after_a_failure(api, error_file):
    plan(api, "FAILED", error="The replica workerpool0-0 exited with a non-zero status of 1.")
    with pytest.raises(TrainingError):
        launch(error_file)
    launch(error_file)
    assert len(jobs(api)) == 2


def test_a_job_of_another_training_is_not_followed(api, error_file):
    background = Launch(error_file, "import time; time.sleep(60)")
    name = wait_for_job(api)
    other = make_spec()
    other["labels"][custom_job_spec.TRAINING_LABEL] = "digits-2"
    custom_job_launcher.launch(other, SETTINGS, 0, error_file)
    assert len(jobs(api)) == 2
    api.set_state(name, "JOB_STATE_CANCELLED")
    assert isinstance(background.wait(), TrainingError)


@pytest.mark.parametrize("fault", ["503", "429", "dropped", "unreachable"])
def test_a_service_that_does_not_answer_for_a_while(api, error_file, fault, caplog):
    background = Launch(error_file, "import time; time.sleep(2)")
    wait_until(lambda: jobs(api))
    if fault == "dropped":
        api.drop(times=3)
    elif fault == "unreachable":
        api.unreachable(1.0)
    else:
        api.fail(int(fault), times=3)
    assert background.wait() is None
    assert caplog.text.count("Vertex AI does not answer, trying again") == 1


def test_a_service_that_does_not_answer_any_more(api, error_file):
    background = Launch(error_file, "import time; time.sleep(60)")
    name = wait_for_job(api)
    api.outage(60)
    error = background.wait()
    assert isinstance(error, TrainingError)
    assert "Vertex AI did not answer for 5 s; the last error: " in str(error)
    api.set_state(name, "JOB_STATE_CANCELLED")


@pytest.mark.parametrize(
    ("code", "kind", "message", "details"),
    [
        (429, NoRoomError, "us-central1 of project project has no room for this CustomJob", "metrics exceed quota limits"),
        (403, ConfigurationError, "the service account of this step may not run a CustomJob in us-central1", "denied"),
    ],
)
def test_a_job_that_is_refused(api, error_file, code, kind, message, details):
    api.fail(code, verb="customJobs.create")
    with pytest.raises(kind) as error:
        launch(error_file)
    assert message in str(error.value)
    assert details in str(error.value)
    assert not jobs(api)


def test_a_job_that_the_service_does_not_accept(api, error_file):
    spec = make_spec()
    spec["labels"]["Team"] = "a"
    with pytest.raises(ConfigurationError, match="Vertex AI refuses a CustomJob in us-central1 of project project: "):
        custom_job_launcher.launch(spec, SETTINGS, 0, error_file)
    spec["job_spec"]["worker_pool_specs"][0]["machine_spec"]["accelerator_type"] = "NVIDIA_OF_TOMORROW"
    with pytest.raises(ConfigurationError, match="NVIDIA_OF_TOMORROW"):
        custom_job_launcher.launch(spec, SETTINGS, 0, error_file)


def test_a_lost_answer_does_not_lead_to_a_second_job(api, error_file):
    api.drop(verb="customJobs.create", after=True)
    launch(error_file)
    assert len(jobs(api)) == 1


def test_a_service_that_does_not_answer_for_a_while_when_a_job_is_created(api, error_file):
    launch(error_file)  # so that a job exists before
    api.fail(503, times=2, verb="customJobs.create")
    launch(error_file)
    assert len(jobs(api)) == 2


def test_a_step_that_is_terminated_while_it_creates_the_job(api, error_file, monkeypatch):
    create = custom_job_client.CustomJobClient.create

    def create_and_terminate(self, spec):
        create(self, spec)
        raise TerminatedError  # before the launcher knows of the job

    monkeypatch.setattr(custom_job_client.CustomJobClient, "create", create_and_terminate)
    with pytest.raises(TerminatedError):
        launch(error_file, "import time; time.sleep(60)")
    wait_until(lambda: jobs(api)[0].state.name == "JOB_STATE_CANCELLED")


@pytest.mark.parametrize("verb", ["list", "cancel"])
def test_a_job_is_cancelled_though_the_service_does_not_answer_at_first(api, error_file, verb):
    background = Launch(error_file, "import time; time.sleep(60)", max_restarts=3)
    name = wait_for_job(api)
    wait_until(lambda: api.state(name) == "JOB_STATE_RUNNING")
    api.fail(503, times=2, verb=f"customJobs.{verb}")
    Failure("hidden_units: is missing", expected=True, final=True).write(error_file)
    assert "hidden_units: is missing" in str(background.wait())
    wait_until(lambda: api.state(name) == "JOB_STATE_CANCELLED")


def test_a_terminated_step_sends_one_request(api, error_file, monkeypatch, caplog):
    """It has about a second."""

    def terminate(self, name):
        raise TerminatedError

    monkeypatch.setattr(custom_job_client.CustomJobClient, "get", terminate)
    api.fail(503, times=1000, verb="customJobs.cancel")
    with pytest.raises(TerminatedError):
        launch(error_file, "import time; time.sleep(60)")
    assert [request.verb for request in api.requests].count("customJobs.cancel") == 1
    assert "cannot cancel training digits-1, which may run for another half an hour" in caplog.text
    api.set_state(jobs(api)[0].name, "JOB_STATE_CANCELLED")


def test_a_job_of_another_attempt_is_not_cancelled(api, error_file):
    """The other attempt has created it while this one hung."""
    background = Launch(error_file, "import time; time.sleep(60)", max_restarts=3)
    name = wait_for_job(api)
    other = custom_job_client.CustomJobClient(SETTINGS.project, SETTINGS.location).create(
        make_spec("import time; time.sleep(60)")
    )
    for each in (name, other.name):
        wait_until(lambda each=each: api.state(each) == "JOB_STATE_RUNNING")
    Failure("hidden_units: is missing", expected=True, final=True).write(error_file)
    assert "hidden_units: is missing" in str(background.wait())
    wait_until(lambda: api.state(name) == "JOB_STATE_CANCELLED")
    assert api.state(other.name) == "JOB_STATE_RUNNING"
    api.set_state(other.name, "JOB_STATE_CANCELLED")


def test_another_attempt_waits_for_a_job_that_is_being_cancelled(api, error_file):
    background = Launch(error_file, "import signal, time; signal.signal(signal.SIGTERM, lambda *_: None); time.sleep(60)")
    name = wait_for_job(api)
    wait_until(lambda: api.state(name) == "JOB_STATE_RUNNING")
    api.set_state(name, "JOB_STATE_CANCELLING")
    second = Launch(error_file)
    time.sleep(0.5)
    assert len(jobs(api)) == 1, "it waits"
    api.set_state(name, "JOB_STATE_CANCELLED")
    assert isinstance(background.wait(), TrainingError)
    assert second.wait() is None
    assert len(jobs(api)) == 2


def test_another_attempt_does_not_follow_a_job_that_has_failed_for_good(api, error_file):
    """For example, a training that nobody followed, whose job has not ended yet."""
    first = Launch(error_file, "import time; time.sleep(60)")
    name = wait_for_job(api)
    wait_until(lambda: api.state(name) == "JOB_STATE_RUNNING")
    Failure("nobody has followed this training", expected=True).write(error_file)
    assert isinstance(first.wait(), TrainingError)
    Failure("nobody has followed this training", expected=True).write(error_file)
    launch(error_file)
    assert {job.state.name for job in jobs(api)} == {"JOB_STATE_CANCELLED", "JOB_STATE_SUCCEEDED"}


def test_a_job_that_somebody_deletes(api, error_file):
    background = Launch(error_file, "import time; time.sleep(60)")
    name = wait_for_job(api)
    wait_until(lambda: api.state(name) == "JOB_STATE_RUNNING")
    api.delete(name)
    error = background.wait()
    assert isinstance(error, TrainingError)
    assert str(error).endswith("is gone: somebody has deleted it while it was training")


def test_a_terminated_step_cancels_the_job(api, error_file):
    def terminate() -> None:
        wait_until(lambda: jobs(api) and jobs(api)[0].state.name == "JOB_STATE_RUNNING")
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    with pytest.raises(TerminatedError):
        launch(error_file, "import time; time.sleep(60)")
    wait_until(lambda: jobs(api)[0].state.name == "JOB_STATE_CANCELLED")


def test_without_credentials(api, error_file, monkeypatch):
    from google.auth import exceptions
    from google.cloud import aiplatform

    def fail(*_: object, **__: object) -> None:
        raise exceptions.DefaultCredentialsError("Your default credentials were not found.")

    monkeypatch.setattr(aiplatform.initializer.global_config, "create_client", fail)
    with pytest.raises(ConfigurationError, match="there are no credentials for Google Cloud: Your default credentials"):
        custom_job_launcher.launch(make_spec(), SETTINGS, 0, error_file)

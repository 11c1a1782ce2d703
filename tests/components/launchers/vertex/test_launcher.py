"""Tests following CustomJobs on a fake of Vertex AI, through the real SDK."""

import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from running import wait_until
from vertex_api import VertexApi
from vertex_harness import SETTINGS
from vertex_pools import Options

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.errors import NoRoomError
from tfx_distribute.components.launchers.launcher import Limits, Training, follow
from tfx_distribute.components.launchers.restarts import Restarts
from tfx_distribute.components.launchers.sigterm import TerminatedError
from tfx_distribute.components.launchers.vertex import custom_job
from tfx_distribute.components.launchers.vertex.launcher import TRAINING_LABEL, VertexLauncher
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.liveness.failure_report import Failure

OPTIONS = Options(worker_restarts=0, job_restarts=0, grace=0.5)  # our exit codes end a job at once
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def api(tmp_path, monkeypatch) -> Iterator[VertexApi]:
    for module, name, value in (
        (VertexLauncher, "poll_seconds", 0.1),
        (timeouts, "VERTEX_ERROR_SECONDS", 3.0),
        (timeouts, "STOP_SECONDS", 2.0),
        (timeouts, "RETRY_SECONDS", 0.1),
        (timeouts, "ANSWER_SECONDS", 5.0),
    ):
        monkeypatch.setattr(module, name, value)
    (tmp_path / "jobs").mkdir()
    with VertexApi(tmp_path / "jobs", OPTIONS) as server, server.connected():
        yield server


@pytest.fixture
def error_file(tmp_path) -> str:
    return str(tmp_path / "error.json")


def make_request(error_file: str, script: str = "pass", workers: int = 1, name: str = "digits-1") -> dict:
    """Returns a CustomJob whose processes run a Python script."""
    distribution = Distribution("multi_worker_mirrored", num_workers=workers)
    address = str(Path(error_file).with_name("job.json"))
    request = VertexLauncher(SETTINGS).request(Training(name, address, distribution, {}))
    for pool in request["job_spec"]["worker_pool_specs"]:
        pool["container_spec"] |= {"command": ["python", "-c", script]}
    return request


def launch(
    error_file: str,
    script: str = "pass",
    workers: int = 1,
    max_restarts: int = 0,
    has_result: bool = False,
    read_step: Callable[[], int] = int,
    **names: str,
) -> None:
    request = make_request(error_file, script, workers, **names)
    follow(VertexLauncher(SETTINGS), request, Limits(Restarts(max_restarts, read_step)), has_result)


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
    api.plan(*(f"{state}" for state in states), error=error)


def wait_for_job(api: VertexApi, state: str = "") -> str:
    """Returns the name of the first job once it is there, in a state."""
    wait_until(lambda: jobs(api) and state in ("", api.state(jobs(api)[0].name)))
    return str(jobs(api)[0].name)


def states(api: VertexApi) -> list[str]:
    return [api.state(job.name) for job in jobs(api)]


def test_a_job_that_succeeds(api, error_file, caplog):
    caplog.set_level("INFO", logger="absl")
    launch(error_file, workers=2)
    (job,) = jobs(api)
    assert job.labels[TRAINING_LABEL] == "digits-1"
    number = job.name.rpartition("/")[2]
    address = f"https://console.cloud.google.com/vertex-ai/locations/us-central1/training/{number}?project=project"
    assert f"created CustomJob {job.name}: {address}" in caplog.text
    assert f"CustomJob {job.name}: succeeded" in caplog.text


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ("FAILED", "The replica workerpool0-0 exited with a non-zero status of 1.", "failed: The replica workerpool0-0"),
        ("CANCELLED", "", "cancelled: no reason is given"),
        ("CANCELLED", "It has run for longer than its timeout.", "cancelled: It has run for longer than its timeout."),
        ("EXPIRED", "", "expired: no reason is given"),
    ],
)
def test_a_job_that_ends_badly(api, error_file, state, error, message):
    api.error_delay = 0.0
    plan(api, "RUNNING", state, error=error)
    with pytest.raises(TrainingError) as raised:
        launch(error_file, max_restarts=3)
    assert message in str(raised.value)
    assert "\nits logs: https://console.cloud.google.com/vertex-ai/locations/us-central1/training/" in str(raised.value)
    assert len(jobs(api)) == 1


def test_a_final_failure_ends_the_job_at_once(api, error_file):
    """Otherwise the service would restart the process several times."""
    background = Launch(error_file, SLEEP, max_restarts=3)
    name = wait_for_job(api, "RUNNING")
    Failure("hidden_units: is missing", expected=True, final=False).write(error_file)  # of a peer
    Failure("hidden_units: is not there", expected=True, final=True).write(error_file)
    error = background.wait()
    assert isinstance(error, TrainingError)
    assert "failed: hidden_units: is not there\nits logs: https://" in str(error)
    wait_until(lambda: api.state(name) == "CANCELLED")


def test_the_failure_of_an_earlier_attempt_is_removed(api, error_file):
    Failure("no such file", expected=True).write(error_file)
    launch(error_file)
    assert Failure.read(error_file) is None


@pytest.mark.parametrize("status", ["138", "9(SIGKILL)", "139"])
def test_exit_codes_after_which_a_job_is_created_again(api, error_file, status):
    plan(api, "RUNNING", "FAILED", error=f"The replica workerpool1-0 exited with a non-zero status of {status}. To find out")
    launch(error_file, max_restarts=1)
    assert len(jobs(api)) == 2


@pytest.mark.parametrize("error", ["Resources are insufficient in region: us-central1.", ""])
def test_failures_of_the_service_after_which_a_job_is_created_again(api, error_file, error):
    plan(api, "RUNNING", "FAILED", error=error)
    launch(error_file, max_restarts=1)
    assert states(api) == ["FAILED", "SUCCEEDED"]


def test_the_error_of_a_failed_job_is_waited_for(api, error_file):
    """The service sets it about a minute after the state."""
    api.error_delay = 1.0
    plan(api, "RUNNING", "FAILED", error="The replica workerpool0-0 exited with a non-zero status of 1.")
    with pytest.raises(TrainingError, match="non-zero status of 1"):
        launch(error_file, max_restarts=1)
    assert len(jobs(api)) == 1


def test_a_job_runs_on_while_the_storage_fails(api, error_file, monkeypatch):
    read, faults = atomic_files.read, [tf.errors.PermissionDeniedError(None, None, "storage.objects.get")] * 5

    def fail(path: str) -> str | None:
        if faults:
            raise faults.pop()
        return read(path)

    monkeypatch.setattr(atomic_files, "read", fail)
    launch(error_file, "import time; time.sleep(1)")
    assert states(api) == ["SUCCEEDED"]
    assert not faults


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "UNAUTHENTICATED"])
def test_a_job_runs_on_while_the_service_does_not_answer(api, error_file, code, caplog):
    background = Launch(error_file, "import time; time.sleep(2)")
    wait_for_job(api)
    api.fail(code, times=3, verb="GetCustomJob")
    assert background.wait() is None
    assert caplog.text.count("Vertex AI does not answer, trying again") == 1


def test_a_service_that_does_not_answer_any_more(api, error_file):
    background = Launch(error_file, SLEEP)
    wait_for_job(api)
    api.outage(60)
    assert "Vertex AI did not answer for 5 s; the last error: " in str(background.wait())


@pytest.mark.parametrize("has_result", [False, True])
def test_another_attempt_after_success(api, error_file, has_result):
    launch(error_file)
    launch(error_file, has_result=has_result)
    assert len(jobs(api)) == (1 if has_result else 2)


def test_a_job_that_still_runs_after_the_result_is_waited_for(api, error_file):
    first = Launch(error_file, "import time; time.sleep(3)")
    name = wait_for_job(api)
    launch(error_file, has_result=True)
    assert api.state(name) == "SUCCEEDED"
    assert first.wait() is None
    assert len(jobs(api)) == 1


def test_a_job_of_another_training_is_not_followed(api, error_file):
    background = Launch(error_file, SLEEP)
    name = wait_for_job(api)
    launch(error_file, name="digits-2")
    assert len(jobs(api)) == 2
    api.set_state(name, "CANCELLED")
    assert isinstance(background.wait(), TrainingError)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (
            "RESOURCE_EXHAUSTED",
            NoRoomError,
            "Vertex AI refuses: The following quota metrics exceed quota limits: .*; ask for a larger quota",
        ),
        ("PERMISSION_DENIED", ConfigurationError, "Vertex AI refuses: Permission .* denied .* roles/aiplatform.user"),
    ],
)
def test_a_job_that_is_refused(api, error_file, code, kind, message):
    api.fail(code, verb="CreateCustomJob")
    with pytest.raises(kind, match=message):
        launch(error_file)
    assert not jobs(api)


def test_a_job_that_the_sdk_does_not_accept(api, error_file):
    request = make_request(error_file)
    request["job_spec"]["worker_pool_specs"][0]["machine_spec"]["accelerator_type"] = "NVIDIA_OF_TOMORROW"
    with pytest.raises(ConfigurationError, match=r"the SDK of Vertex AI refuses: .*NVIDIA_OF_TOMORROW"):
        follow(VertexLauncher(SETTINGS), request, Limits(Restarts(0)))


def test_a_lost_answer_does_not_lead_to_a_second_job(api, error_file):
    api.fail("UNAVAILABLE", verb="CreateCustomJob", after=True)
    launch(error_file, "import time; time.sleep(1)")
    assert len(jobs(api)) == 1


def test_a_service_that_does_not_answer_for_a_while_when_a_job_is_created(api, error_file):
    launch(error_file)  # so that a job exists before
    api.fail("UNAVAILABLE", times=2, verb="CreateCustomJob")
    launch(error_file)
    assert len(jobs(api)) == 2


@pytest.mark.parametrize("verb", ["ListCustomJobs", "CancelCustomJob"])
def test_a_job_is_cancelled_though_the_service_does_not_answer_at_first(api, error_file, verb):
    background = Launch(error_file, SLEEP, max_restarts=3)
    name = wait_for_job(api, "RUNNING")
    api.fail("UNAVAILABLE", times=2, verb=verb)
    Failure("hidden_units: is missing", expected=True, final=True).write(error_file)
    assert "hidden_units: is missing" in str(background.wait())
    wait_until(lambda: api.state(name) == "CANCELLED")


def test_a_terminated_step_sends_one_request(api, error_file, monkeypatch, caplog):
    """It has about a second. The service has not confirmed the job."""
    api.fail("UNAVAILABLE", times=1000, verb="CancelCustomJob")
    monkeypatch.setattr(custom_job.FollowedJob, "state", lambda self: (_ for _ in ()).throw(TerminatedError))
    with pytest.raises(TerminatedError):
        launch(error_file, SLEEP)
    assert api.verbs.count("CancelCustomJob") == 1
    assert "cannot cancel digits-1, which may run for another half an hour" in caplog.text


def test_a_job_is_cancelled_that_the_service_has_not_confirmed(api, error_file, monkeypatch):
    def terminate(*_: object) -> None:
        raise TerminatedError

    api.fail("UNAVAILABLE", verb="CreateCustomJob", after=True)
    times = types.SimpleNamespace(monotonic=time.monotonic, sleep=terminate)
    monkeypatch.setattr(retry, "time", times)  # before the request is sent again
    with pytest.raises(TerminatedError):
        launch(error_file, SLEEP)
    monkeypatch.undo()
    wait_until(lambda: states(api) == ["CANCELLED"])


def test_a_job_of_another_attempt_is_not_cancelled(api, error_file):
    """The other attempt has created it while this one hung."""
    background = Launch(error_file, SLEEP)
    name = wait_for_job(api, "RUNNING")
    request = make_request(error_file, SLEEP)
    follower = custom_job.FollowedJob(SETTINGS, request, 0.1)
    message = custom_job.service.parse(custom_job.CustomJob, request)
    other = follower._client.create_custom_job(parent=api.parent, custom_job=message)
    wait_until(lambda: api.state(other.name) == "RUNNING")
    Failure("hidden_units: is missing", expected=True, final=True).write(error_file)
    assert "hidden_units: is missing" in str(background.wait())
    wait_until(lambda: api.state(name) == "CANCELLED")
    assert api.state(other.name) == "RUNNING"


def test_another_attempt_waits_for_a_job_that_is_being_cancelled(api, error_file):
    background = Launch(error_file, SLEEP)
    name = wait_for_job(api, "RUNNING")
    api.set_state(name, "CANCELLING")
    second = Launch(error_file)
    time.sleep(0.5)
    assert len(jobs(api)) == 1, "it waits"
    api.set_state(name, "CANCELLED")
    assert isinstance(background.wait(), TrainingError)
    assert second.wait() is None
    assert len(jobs(api)) == 2


def test_a_job_that_somebody_deletes(api, error_file):
    background = Launch(error_file, SLEEP)
    api.delete(wait_for_job(api, "RUNNING"))
    assert str(background.wait()).endswith("is gone: somebody has deleted it while it was training")


def test_without_credentials(api, error_file, monkeypatch):
    from google.auth import exceptions
    from google.cloud import aiplatform

    def fail(*_: object, **__: object) -> None:
        raise exceptions.DefaultCredentialsError("Your default credentials were not found.")

    monkeypatch.setattr(aiplatform.initializer.global_config, "create_client", fail)
    with pytest.raises(ConfigurationError, match=r"there are no credentials for Google Cloud \(Your default credentials"):
        launch(error_file)

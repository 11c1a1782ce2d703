"""Tests following CustomJobs on a fake of Vertex AI, through the real SDK."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Launch
from running import wait_until
from vertex_api import VertexApi
from vertex_harness import SETTINGS
from vertex_pools import Options

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.errors import NoRoomError
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.components.launchers.vertex.launcher import TRAINING_LABEL, VertexLauncher
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.liveness.failure_report import Failure

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
    with VertexApi(tmp_path / "jobs", Options(grace=0.5)) as server, server.connected():
        yield server


@pytest.fixture
def error_file(tmp_path) -> str:
    return str(tmp_path / "error.json")


def make_request(error_file: str, script: str = "pass", workers: int = 1) -> dict:
    """Returns a CustomJob whose processes run a Python script."""
    distribution = Distribution("multi_worker_mirrored", num_workers=workers)
    address = str(Path(error_file).with_name("job.json"))
    request = VertexLauncher(SETTINGS).request(Training("digits-1", address, distribution, {}))
    for pool in request["job_spec"]["worker_pool_specs"]:
        pool["container_spec"] |= {"command": ["python", "-c", script]}
    return request


def start(error_file: str, script: str = "pass", workers: int = 1, max_restarts: int = 0) -> Launch:
    return Launch(VertexLauncher(SETTINGS), make_request(error_file, script, workers), max_restarts)


def launch(error_file: str, **options: int) -> None:
    error = start(error_file, **options).wait(60)
    if error:
        raise error


def jobs(api: VertexApi) -> list:
    return api.all("customJobs")


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
    api.plan("RUNNING", state, error=error)
    with pytest.raises(TrainingError) as raised:
        launch(error_file, max_restarts=3)
    assert message in str(raised.value)
    assert "\nits logs: https://console.cloud.google.com/vertex-ai/locations/us-central1/training/" in str(raised.value)
    assert len(jobs(api)) == 1


def test_a_final_failure_ends_the_job_at_once(api, error_file):
    """Otherwise the service would restart the process several times."""
    background = start(error_file, SLEEP, max_restarts=3)
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


EXIT = "The replica workerpool1-0 exited with a non-zero status of "


@pytest.mark.parametrize(
    "error", [f"{EXIT}138. To find out", f"{EXIT}9(SIGKILL)", "Resources are insufficient in region: us-central1.", ""]
)
def test_failures_after_which_a_job_is_created_again(api, error_file, error):
    api.plan("RUNNING", "FAILED", error=error)
    launch(error_file, max_restarts=1)
    assert states(api) == ["FAILED", "SUCCEEDED"]


def test_the_error_of_a_failed_job_is_waited_for(api, error_file):
    """The service sets it about a minute after the state."""
    api.error_delay = 1.0
    api.plan("RUNNING", "FAILED", error="The replica workerpool0-0 exited with a non-zero status of 1.")
    with pytest.raises(TrainingError, match="non-zero status of 1"):
        launch(error_file, max_restarts=1)
    assert len(jobs(api)) == 1


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "UNAUTHENTICATED"])
def test_a_job_runs_on_while_the_service_does_not_answer(api, error_file, code, caplog):
    background = start(error_file, "import time; time.sleep(2)")
    wait_for_job(api)
    api.fail(code, times=3, verb="GetCustomJob")
    assert background.wait() is None
    assert caplog.text.count("Vertex AI does not answer, trying again") == 1


def test_a_service_that_does_not_answer_any_more(api, error_file):
    background = start(error_file, SLEEP)
    wait_for_job(api)
    api.fail("UNAVAILABLE", times=1000)
    assert "Vertex AI did not answer for 5 s; the last error: " in str(background.wait())


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


def test_a_job_that_somebody_deletes(api, error_file):
    background = start(error_file, SLEEP)
    api.delete(wait_for_job(api, "RUNNING"))
    assert str(background.wait()).endswith("is gone: somebody has deleted it while it was training")

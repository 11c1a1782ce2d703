"""Tests submitting to Vertex AI and following a job.

The real SDK talks to a stand-in of the service.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import gcloud
import pytest
import vertex_example
from click.testing import CliRunner, Result
from vertex_api import Task, VertexApi

from tfx_distribute.components.launchers import retry
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.runners.vertex import client as vertex_client
from tfx_distribute.pipelines.runners.vertex.settings import PscInterfaceConfig, VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError

DIGITS = Path(__file__).resolve().parents[4] / "examples" / "digits" / "vertex.yaml"
KEY = "projects/project/locations/us-central1/keyRings/r/cryptoKeys/k"
TARGET = VertexSettings(
    image="image",
    pipeline_root="gs://bucket/root",
    project="project",
    region="us-central1",
    service_account="trainer@project.iam.gserviceaccount.com",
    network="projects/1234/global/networks/training",
    encryption_spec_key_name=KEY,
    labels={"team": "a"},
)
DOCUMENT = vertex_example.pipeline_job("gs://other/root")
RUN = vertex_client.Run("mine", json.dumps(DOCUMENT))


@pytest.fixture
def transport() -> str:
    """The SDK's default."""
    return "grpc"


@pytest.fixture
def api(tmp_path, monkeypatch, transport) -> Iterator[VertexApi]:
    monkeypatch.setattr(vertex_client, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retry, "TIMEOUT_SECONDS", 2.0)
    (tmp_path / "jobs").mkdir()
    with VertexApi(tmp_path / "jobs") as server, server.connected(transport):
        server.around.make_bucket("bucket")
        yield server


def plan(api: VertexApi, *states: str, error: str = "", tasks: tuple[Task, ...] = ()) -> None:
    api.plan(*(f"PIPELINE_STATE_{state}" for state in states), error=error, tasks=tasks)


def test_submits(api):
    run = vertex_client.Run(
        "mine", json.dumps(DOCUMENT), {"epochs": 3}, display_name="tonight", job_id="mine-1", labels={"run": "b"}
    )
    submitted = vertex_client.Pipelines(TARGET).submit(run)
    (job,) = api.all("pipelineJobs")
    assert submitted.id == job.name
    address = "https://console.cloud.google.com/vertex-ai/locations/us-central1/pipelines/runs/mine-1?project="
    assert submitted.address.startswith(address)
    assert (job.display_name, job.name.rpartition("/")[2]) == ("tonight", "mine-1")
    assert job.runtime_config.parameters["epochs"].int_value == 3
    assert job.runtime_config.gcs_output_directory == "gs://bucket/root"
    assert (job.service_account, job.network) == (TARGET.service_account, TARGET.network)
    assert job.encryption_spec.kms_key_name == KEY
    assert {"team": "a", "run": "b"}.items() <= dict(job.labels).items()


def test_both_kinds_of_run_have_an_interface_to_a_network(api):
    interface = {"network_attachment": "projects/p/regions/us-central1/networkAttachments/a"}
    target = TARGET.model_copy(update={"network": None, "psc_interface_config": PscInterfaceConfig(**interface)})
    pipelines = vertex_client.Pipelines(target)
    pipelines.submit(RUN)
    pipelines.schedule(RUN, vertex_client.Schedule("0 3 * * *"))
    (job,), (schedule,) = api.all("pipelineJobs"), api.all("schedules")
    for request in (job, schedule.create_pipeline_job_request.pipeline_job):
        assert request.psc_interface_config.network_attachment == interface["network_attachment"]
        assert not request.network


def test_two_in_the_same_second(api):
    pipelines = vertex_client.Pipelines(TARGET)
    names = {pipelines.submit(RUN).id for _ in range(2)}
    assert len(names) == 2


def test_follows_a_job_to_its_end(api):
    plan(api, "QUEUED", "RUNNING", "SUCCEEDED", tasks=(Task("Trainer"),))
    pipelines = vertex_client.Pipelines(TARGET)
    lines: list[str] = []
    assert pipelines.wait(pipelines.submit(RUN).id, lines.append) == "succeeded"
    assert [line.split() for line in lines] == [["Trainer", "succeeded"]]


def test_tells_what_failed(api):
    failed = Task("Trainer", "FAILED", "The replica workerpool0-0 exited with a non-zero status of 1.")
    plan(api, "RUNNING", "FAILED", error="The DAG failed because some tasks failed.", tasks=(failed,))
    pipelines = vertex_client.Pipelines(TARGET)
    lines: list[str] = []
    assert pipelines.wait(pipelines.submit(RUN).id, lines.append) == "failed"
    assert re.split(" +", lines[0], maxsplit=1) == ["Trainer", f"failed: {failed.error}"]
    assert lines[-1] == "The DAG failed because some tasks failed."


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_goes_on_waiting_when_the_service_does_not_answer(api):
    plan(api, "RUNNING", "RUNNING", "SUCCEEDED")
    pipelines = vertex_client.Pipelines(TARGET)
    name = pipelines.submit(RUN).id
    api.fail(503, times=2)
    api.drop(times=2)
    assert pipelines.wait(name, print) == "succeeded"


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_does_not_wait_for_ever(api):
    pipelines = vertex_client.Pipelines(TARGET)
    name = pipelines.submit(RUN).id
    api.outage(60)
    with pytest.raises(ConfigurationError, match=r"Vertex AI in us-central1 of project project does not answer"):
        pipelines.wait(name, print)


@pytest.mark.parametrize("transport", ["rest", "grpc"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (403, "--project: you may not run pipelines in us-central1 of project project ("),
        (429, "Vertex AI in us-central1 of project project refuses: "),
        (503, "Vertex AI in us-central1 of project project does not answer: "),
    ],
)
def test_what_is_refused(api, code, message):
    api.fail(code, times=5, verb="pipelineJobs.create")
    with pytest.raises(ConfigurationError) as error:
        vertex_client.Pipelines(TARGET).submit(RUN)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, "epoch: the pipeline has no such parameter; did you mean epochs"),
        ({"epochs": "three"}, "epochs: 'three' is not an integer"),
        ({"epochs": True}, "epochs: True is not an integer"),
    ],
)
def test_wrong_parameters(api, values, message):
    with pytest.raises(ConfigurationError, match=message):
        vertex_client.Pipelines(TARGET).submit(vertex_client.Run("mine", json.dumps(DOCUMENT), values))
    assert not api.all("pipelineJobs")


@pytest.mark.parametrize("cron", [None, "0 3 * * *"])
def test_no_bucket_is_created(api, cron):
    target = TARGET.model_copy(update={"pipeline_root": "gs://buckett/root"})
    pipelines = vertex_client.Pipelines(target)
    with pytest.raises(ConfigurationError, match=r"pipeline_root: bucket gs://buckett does not exist; correct its name, or"):
        pipelines.schedule(RUN, vertex_client.Schedule(cron)) if cron else pipelines.submit(RUN)
    assert not api.around.created
    assert not api.all("pipelineJobs")


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_accounts_that_one_may_not_act_as(api):
    api.around.accounts = {"other@project.iam.gserviceaccount.com"}
    with pytest.raises(
        ConfigurationError, match=r"\(or it may not exist\)\.; check that the account exists, and that you may"
    ):
        vertex_client.Pipelines(TARGET).submit(RUN)


def test_buckets_that_the_account_may_not_use(api):
    api.around.make_bucket("closed", is_open=False)
    target = TARGET.model_copy(update={"pipeline_root": "gs://closed/root"})
    with pytest.raises(ConfigurationError, match="does not have `\\[storage.objects.get, storage.objects.create\\]`"):
        vertex_client.Pipelines(target).submit(RUN)


def test_schedules(api):
    when = vertex_client.Schedule("TZ=Europe/Zurich 0 3 * * *", max_run_count=5, end_time="2030-01-01T00:00:00Z")
    created = vertex_client.Pipelines(TARGET).schedule(RUN, when)
    (schedule,) = api.all("schedules")
    assert created.id == schedule.name
    assert "/pipelines/schedules/" in created.address
    assert (schedule.cron, schedule.max_run_count, schedule.max_concurrent_run_count) == (when.cron, 5, 1)
    job = schedule.create_pipeline_job_request.pipeline_job
    assert (job.service_account, job.network) == (TARGET.service_account, TARGET.network)
    assert job.encryption_spec.kms_key_name == KEY


@pytest.fixture
def command(api) -> Callable[..., Result]:
    """Submits the digits in this process, to a project that has what they need."""
    project = api.around
    for bucket in ("other", "example-bucket"):
        project.make_bucket(bucket)
    project.images["projects/example-project/locations/europe-west4/repositories/team/packages/digits"] = {"1-gpu"}
    where = ["--target", "vertex", "--project", "project", "--region", "us-central1"]
    for account in ("trainer@example-project.iam.gserviceaccount.com", "a@project.iam.gserviceaccount.com"):
        printed = CliRunner().invoke(main, ["manifests", str(DIGITS), *where, "--service-account", account])
        assert printed.exit_code == 0, printed.output
        gcloud.run_script(printed.output, project)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["submit", str(DIGITS), *where, *arguments])

    return run


def test_command_submits(api, command):
    arguments = ("-p", "epochs=3", "-p", "learning_rate=0.01", "--run-name", "tonight", "--labels", "run=b", "--no-cache")
    result = command(
        *arguments, "--service-account", "a@project.iam.gserviceaccount.com", "--pipeline-root", "gs://other/root"
    )
    assert result.exit_code == 0, result.output
    (job,) = api.all("pipelineJobs")
    assert result.output.startswith("run      https://console.cloud.google.com/vertex-ai/locations/us-central1/")
    assert len(result.output.splitlines()) == 1, "the SDK says much more"
    assert (job.display_name, job.service_account) == ("tonight", "a@project.iam.gserviceaccount.com")
    assert job.runtime_config.gcs_output_directory == "gs://other/root"
    values = job.runtime_config.parameters
    assert values["epochs"].int_value == 3
    assert json.loads(values["hparams"].string_value) == {"hidden_units": 128, "learning_rate": 0.01}
    tasks = job.pipeline_spec["root"]["dag"]["tasks"]
    assert not [name for name, task in tasks.items() if task.get("cachingOptions", {}).get("enableCache")]
    assert not logging.getLogger("google.cloud.aiplatform").disabled


@pytest.mark.parametrize(("ended", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELLED", 1)])
def test_command_waits(api, command, ended, code):
    plan(api, "RUNNING", ended)
    result = command("--wait")
    assert result.exit_code == code, result.output
    assert result.output.splitlines()[-1] == f"ended    {ended.lower()}"


def test_command_schedules(api, command):
    result = command("--cron", "0 3 * * *", "--max-concurrent-run-count", "2")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("schedule https://console.cloud.google.com/")
    (schedule,) = api.all("schedules")
    assert schedule.max_concurrent_run_count == 2


def test_command_checks_the_project(api, command):
    api.around.images.clear()
    api.around.iam.revoke("projects/project", "roles/logging.logWriter")
    result = command()
    assert result.exit_code == 2
    first, role, image = result.output.splitlines()
    assert first == "Error: the run would fail in project project (--skip-checks submits it anyway):"
    assert role.startswith("  roles/logging.logWriter of trainer@example-project.iam.gserviceaccount.com: is missing; ")
    assert image.startswith("  image europe-west4-docker.pkg.dev/example-project/team/digits:1-gpu: does not exist; build")
    assert not api.all("pipelineJobs")
    assert command("--skip-checks").exit_code == 0
    assert len(api.all("pipelineJobs")) == 1


def test_command_that_is_refused(api, command):
    api.fail(403, verb="pipelineJobs.create")
    result = command()
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert line.startswith("Error: --project: you may not run pipelines in us-central1 of project project")

"""Tests submitting to Vertex AI, and following, listing and cancelling its jobs.

The real SDK talks to a stand-in of the service.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from compiled_for_vertex import TARGET as SETTINGS
from compiled_for_vertex import project
from google.cloud.aiplatform_v1.types import PipelineTaskDetail
from google.rpc import status_pb2
from vertex_api import VertexApi

from tfx_distribute.components import timeouts
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.targets.vertex.client import VertexRuns, make_job
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
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
)
DOCUMENT: dict[str, Any] = {
    "displayName": "mine",
    "labels": {"team": "a"},
    "pipelineSpec": {
        "pipelineInfo": {"name": "mine"},
        "schemaVersion": "2.0.0",
        "root": {
            "inputDefinitions": {"parameters": {"epochs": {"type": "INT"}}},
            "dag": {"tasks": {"Trainer": {"taskInfo": {"name": "Trainer"}, "componentRef": {"name": "Trainer"}}}},
        },
        "components": {"Trainer": {"executorLabel": "Trainer_executor"}},
        "deploymentSpec": {"executors": {"Trainer_executor": {"container": {"image": "i", "command": ["true"]}}}},
    },
    "runtimeConfig": {"gcsOutputDirectory": "gs://bucket/root", "parameters": {"epochs": {"intValue": 2}}},
}
JOB = make_job(DOCUMENT, TARGET)


@pytest.fixture
def api(tmp_path, monkeypatch) -> Iterator[VertexApi]:
    monkeypatch.setattr(timeouts, "RUN_POLL_SECONDS", 0.01)
    monkeypatch.setattr(timeouts, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(timeouts, "ANSWER_SECONDS", 2.0)
    with VertexApi(tmp_path) as server, server.connected():
        yield server


@pytest.fixture
def runs(api) -> VertexRuns:
    return VertexRuns("project", "us-central1")


def task(name: str, state: str = "SUCCEEDED", error: str = "") -> PipelineTaskDetail:
    detail = PipelineTaskDetail(task_id=len(name), task_name=name, state=state)
    if error:
        detail.error = status_pb2.Status(message=error)
    return detail


def test_submits(api, runs):
    job = make_job(DOCUMENT, TARGET, "tonight", {"run": "b"})
    submitted = runs.submit(job)
    (job,) = api.all("pipelineJobs")
    assert submitted.id == job.name
    address = "https://console.cloud.google.com/vertex-ai/locations/us-central1/pipelines/runs/mine-20"
    assert submitted.address.startswith(address)
    assert job.display_name == "tonight"
    assert (job.service_account, job.network) == (TARGET.service_account, TARGET.network)
    assert job.encryption_spec.kms_key_name == KEY
    assert dict(job.labels) == {"team": "a", "run": "b"}


def test_both_kinds_of_run_have_an_interface_to_a_network(api, runs):
    interface = {"network_attachment": "projects/p/regions/us-central1/networkAttachments/a"}
    target = TARGET.model_copy(update={"network": None, "psc_interface_config": interface})
    job = make_job(DOCUMENT, target)
    runs.submit(job)
    runs.submit(job, {"cron": "0 3 * * *"})
    (job,), (schedule,) = api.all("pipelineJobs"), api.all("schedules")
    for request in (job, schedule.create_pipeline_job_request.pipeline_job):
        assert request.psc_interface_config.network_attachment == interface["network_attachment"]
        assert not request.network


def test_follows_a_job_to_its_end(api, runs):
    api.plan("QUEUED", "RUNNING", "SUCCEEDED", tasks=[task("Trainer")])
    lines: list[str] = []
    name = runs.submit(JOB).id
    api.fail("UNAVAILABLE", times=2)
    assert runs.follow(name, lines.append)
    assert [line.split() for line in lines] == [["Trainer", "succeeded"], ["ended", "succeeded"]]


def test_tells_what_failed(api, runs):
    api.plan("RUNNING", "FAILED", error="The DAG failed.", tasks=[task("Trainer", "FAILED", "non-zero status of 1.")])
    lines: list[str] = []
    assert not runs.follow(runs.submit(JOB).id, lines.append)
    assert lines == [f"{'Trainer':28} failed: non-zero status of 1.", "The DAG failed.", "ended    failed"]


def test_a_quota_that_is_used_up(api, runs):
    api.fail("RESOURCE_EXHAUSTED", verb="CreatePipelineJob")
    with pytest.raises(ConfigurationError, match="Vertex AI refuses: The following quota metrics exceed"):
        runs.submit(JOB)


def test_wrong_words_of_the_api_are_refused_before_a_run(api, tmp_path):
    file = project(tmp_path, "digits", targets={"vertex": {**SETTINGS, "worker_pool": {"disc_spec": {}}}})
    result = command("submit", file, "-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")
    assert re.search("the SDK of Vertex AI refuses: .*disc_spec", result.output)
    assert not api.all("pipelineJobs")


def test_schedules_are_listed_and_changed(api, runs):
    for number in range(3):
        runs.submit({**JOB, "displayName": f"number {number}"}, {"cron": "0 3 * * *"})
    listed = runs.list_schedules(2)
    assert [(each.name, each.state, each.cron) for each in listed] == [
        ("number 2", "active", "0 3 * * *"),
        ("number 1", "active", "0 3 * * *"),
    ]
    assert listed[0].next_run is not None
    runs.change_schedule(listed[0].id, "pause")
    assert runs.list_schedules(1)[0].state == "paused"
    with pytest.raises(ConfigurationError, match="is not ACTIVE"):
        runs.change_schedule(listed[0].id, "pause")
    runs.change_schedule(listed[0].id, "resume")
    assert runs.list_schedules(1)[0].state == "active"
    runs.change_schedule(api.all("schedules")[0].name, "delete")
    assert [each.name for each in runs.list_schedules(10)] == ["number 2", "number 1"]
    with pytest.raises(ConfigurationError, match="does not exist"):
        runs.change_schedule("123456", "resume")


def command(name: str, *arguments: object) -> Result:
    place = ("--target", "vertex", "--project", "project", "--region", "us-central1")
    return CliRunner().invoke(main, [name, *map(str, arguments), *place])


def test_commands_runs(api, runs):
    name = runs.submit(make_job(DOCUMENT, TARGET)).id
    ident = name.rpartition("/")[2]
    api.set_state(name, "RUNNING", tasks=[task(ident, "RUNNING"), task("Trainer", "FAILED", "no quota")])
    listed = command("runs", "list")
    assert listed.exit_code == 0, listed.output
    assert listed.output.splitlines()[1].split()[:3] == [ident, "mine", "running"]

    document = json.loads(command("runs", "show", ident, "--output", "json").output)
    assert (document["state"], document["parameters"], document["seconds"]) == ("running", {"epochs": "2"}, None)
    assert [(each["name"], each["state"], each["error"]) for each in document["tasks"]] == [
        ("Trainer", "failed", "no quota")
    ]
    assert "no quota" in command("runs", "show", name).output, "by the whole resource name, too"

    assert command("runs", "cancel", ident).output == f"{ident}: asked to end\n"
    assert api.state(name) == "CANCELLING"
    api.set_state(name, "SUCCEEDED")
    ended = command("runs", "cancel", ident)
    assert ended.exit_code == 2
    assert "has ended and cannot be cancelled" in ended.output
    unknown = command("runs", "show", "unknown")
    assert (unknown.exit_code, unknown.output.count("\n")) == (2, 1)
    assert "Vertex AI refuses: The job does not exist" in unknown.output


def test_command_submit(api):
    arguments = ("-p", "epochs=3", "-p", "learning_rate=0.01", "--run-name", "tonight", "--labels", "run=b", "--no-cache")
    result = command("submit", DIGITS, *arguments, "--pipeline-root", "gs://other/root")
    assert result.exit_code == 0, result.output
    (job,) = api.all("pipelineJobs")
    assert result.output.startswith("run      https://console.cloud.google.com/vertex-ai/locations/us-central1/")
    assert len(result.output.splitlines()) == 1
    assert (job.display_name, job.labels["run"]) == ("tonight", "b")
    assert job.runtime_config.gcs_output_directory == "gs://other/root"
    values = job.runtime_config.parameters
    assert values["epochs"].int_value == 3
    assert json.loads(values["hparams"].string_value) == {"hidden_units": 128, "learning_rate": 0.01}
    tasks = job.pipeline_spec["root"]["dag"]["tasks"]
    assert not [name for name, each in tasks.items() if each.get("cachingOptions", {}).get("enableCache")]

    scheduled = command("submit", DIGITS, "--cron", "0 3 * * *", "--max-concurrent-run-count", "2")
    assert scheduled.output.startswith("schedule https://console.cloud.google.com/"), scheduled.output
    assert api.all("schedules")[0].max_concurrent_run_count == 2

    api.fail("PERMISSION_DENIED", verb="CreatePipelineJob")
    refused = command("submit", DIGITS)
    assert (refused.exit_code, len(refused.output.splitlines())) == (2, 1)
    assert refused.output.startswith("Error: Vertex AI refuses: Permission 'aiplatform.")


def test_no_credentials_in_a_line(tmp_path):
    """Without a project, whose error hides that of the credentials."""
    environment = {**os.environ, "HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true"}
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUD_ML_PROJECT_ID"):
        environment.pop(name, None)
    words = [sys.executable, "-m", "tfx_distribute.pipelines", "runs", "list", "--target", "vertex"]
    done = subprocess.run(
        [*words, "--region", "europe-west4"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("Error: there are no credentials for Google Cloud")

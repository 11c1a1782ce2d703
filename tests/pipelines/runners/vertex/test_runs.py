"""Tests listing, showing and cancelling pipeline jobs of Vertex AI.

The real SDK talks to a stand-in of the service.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import vertex_example
from click.testing import CliRunner, Result
from vertex_api import Task, VertexApi

from tfx_distribute.components.launchers import retry
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.runners.vertex import client, runs
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings

TARGET = VertexSettings(
    image="image", pipeline_root="gs://bucket/root", project="project", region="us-central1", service_account="a@b.c"
)
DOCUMENT = vertex_example.pipeline_job("gs://bucket/root")


@pytest.fixture
def api(tmp_path, monkeypatch) -> Iterator[VertexApi]:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retry, "TIMEOUT_SECONDS", 2.0)
    (tmp_path / "jobs").mkdir()
    with VertexApi(tmp_path / "jobs") as server, server.connected():
        server.around.make_bucket("bucket")
        yield server


def submit(**values: object) -> str:
    run = client.Run("mine", json.dumps(DOCUMENT), **values)  # type: ignore[arg-type]
    return client.Pipelines(TARGET).submit(run).id


def command(*arguments: str) -> Result:
    place = ("--target", "vertex", "--project", "project", "--region", "us-central1")
    return CliRunner().invoke(main, ["runs", *arguments, *place])


def test_list_in_pages(api, monkeypatch):
    monkeypatch.setattr(runs, "PAGE_SIZE", 2)
    for number in range(5):
        submit(job_id=f"job-{number}")
    connected = runs.VertexRuns("project", "us-central1")
    assert [run.id for run in connected.list_runs(10)] == ["job-4", "job-3", "job-2", "job-1", "job-0"]
    assert [run.id for run in connected.list_runs(3)] == ["job-4", "job-3", "job-2"]


def test_commands(api):
    name = submit(job_id="job-1", arguments={"epochs": 3})
    api.set_state(name, "PIPELINE_STATE_RUNNING", tasks=[Task("job-1", "RUNNING"), Task("Trainer", "FAILED", "no quota")])
    listed = command("list")
    assert listed.exit_code == 0, listed.output
    assert listed.output.splitlines()[1].split()[:3] == ["job-1", "mine", "running"]

    document = json.loads(command("show", "job-1", "--output", "json").output)
    assert (document["state"], document["parameters"], document["seconds"]) == ("running", {"epochs": "3"}, None)
    assert [(task["name"], task["state"], task["error"]) for task in document["tasks"]] == [
        ("Trainer", "failed", "no quota")
    ]
    assert "no quota" in command("show", name).output, "by the whole resource name, too"

    assert command("cancel", "job-1").output == "job-1: asked to end\n"
    assert api.state(name).endswith("CANCELLING")


def test_errors(api):
    unknown = command("show", "unknown")
    assert (unknown.exit_code, unknown.output.count("\n")) == (2, 1)
    assert "Vertex AI in us-central1 of project project refuses" in unknown.output
    name = submit(job_id="job-1")
    api.set_state(name, "PIPELINE_STATE_SUCCEEDED")
    ended = command("cancel", "job-1")
    assert ended.exit_code == 2
    assert "has ended and cannot be cancelled" in ended.output


@pytest.mark.parametrize("project", [["--project", "example-project"], []])
def test_no_credentials_in_a_line(tmp_path, project):
    """Without a project too, whose error hides that of the credentials."""
    environment = {**os.environ, "HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true"}
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUD_ML_PROJECT_ID"):
        environment.pop(name, None)
    words = [sys.executable, "-m", "tfx_distribute.pipelines", "runs", "list", "--target", "vertex", *project]
    done = subprocess.run(
        [*words, "--region", "europe-west4"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("Error: there are no credentials for Google Cloud")

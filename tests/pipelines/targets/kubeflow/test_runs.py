"""Tests listing, showing and cancelling runs on Kubeflow Pipelines.

The real `kfp.Client` talks to a stand-in of the API server.
"""

import json
from collections.abc import Iterator

import kfp
import pytest
import yaml
from click.testing import CliRunner, Result
from kfp_api import KfpApi

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.targets.kubeflow import client

STEP = {"componentRef": {"name": "step"}}
DOCUMENT = yaml.safe_dump(
    {
        "pipelineInfo": {"name": "mine"},
        "schemaVersion": "2.1.0",
        "root": {
            "inputDefinitions": {"parameters": {"epochs": {"parameterType": "NUMBER_INTEGER", "defaultValue": 2}}},
            "dag": {"tasks": {"Reader": STEP, "Trainer": STEP}},
        },
        "components": {"step": {"executorLabel": "step"}},
        "deploymentSpec": {"executors": {"step": {"container": {"image": "image"}}}},
    }
)


@pytest.fixture
def api(tmp_path, monkeypatch) -> Iterator[KfpApi]:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(home / "context.json"))
    monkeypatch.setattr(kfp.Client, "_NAMESPACE_PATH", str(home / "namespace"))
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    with KfpApi() as started:
        yield started


def submit(api: KfpApi, name: str) -> str:
    pipelines = client.KubeflowRuns(api.url)
    return pipelines.submit("mine", DOCUMENT, "gs://bucket/root", {"epochs": 3}, display_name=name).id


def command(api: KfpApi, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["runs", *arguments, "--target", "kubeflow", "--host", api.url])


def test_list_in_pages(api, monkeypatch):
    monkeypatch.setattr(client, "PAGE_SIZE", 2)
    ids = [submit(api, f"run {number}") for number in range(5)]
    connected = client.KubeflowRuns(api.url)
    assert [run.id for run in connected.list_runs(10)] == ids[::-1]
    assert [run.name for run in connected.list_runs(3)] == ["run 4", "run 3", "run 2"]


def test_commands(api):
    run_id = submit(api, "mine")
    steps = {"Reader": "SUCCEEDED", "Trainer": "RUNNING"}
    api.set_state(run_id, "RUNNING", {"exit-handler-1": "RUNNING", **steps, "exit-handler-1.onExit": "PENDING"})
    listed = command(api, "list")
    assert listed.exit_code == 0, listed.output
    assert listed.output.splitlines()[1].split()[:3] == [run_id, "mine", "running"]

    shown = command(api, "show", run_id, "--output", "json")
    document = json.loads(shown.output)
    assert (document["state"], document["parameters"], document["seconds"]) == ("running", {"epochs": 3}, None)
    # What the backend and we add is left out.
    assert [(task["name"], task["state"]) for task in document["tasks"]] == [("Reader", "succeeded"), ("Trainer", "running")]
    assert "Trainer  running" in command(api, "show", run_id).output

    api.runs[run_id].state = "SUCCEEDED"
    assert "Trainer  unknown" in command(api, "show", run_id).output

    api.runs[run_id].state = "RUNNING"
    cancelled = command(api, "cancel", run_id)
    assert cancelled.output == f"{run_id}: asked to end\n"
    assert api.runs[run_id].state == "CANCELING"


def test_errors(api):
    unknown = command(api, "show", "unknown")
    assert (unknown.exit_code, unknown.output.count("\n")) == (2, 1)
    assert "404" in unknown.output
    assert "not found" in unknown.output
    assert "RUN: is missing" in command(api, "show").output
    mixed = command(api, "list", "--root", "runs/digits")
    assert mixed.output == "Error: --root: goes with --target local, not with --target kubeflow\n"
    mixed = command(api, "list", "--region", "europe-west4")
    assert mixed.output == "Error: --region: goes with --target vertex, not with --target kubeflow\n"


def test_schedules(api):
    pipelines = client.KubeflowRuns(api.url)
    times = {"cron": "0 3 * * 1-5", "start_time": "2026-12-01T00:00:00Z", "max_concurrent_run_count": 2, "no_catchup": True}
    first = pipelines.submit("mine", DOCUMENT, "gs://bucket/root", {"epochs": 3}, display_name="nightly", schedule=times)
    second = pipelines.submit("mine", DOCUMENT, "gs://bucket/root", schedule={"cron": "0 * * * *"})
    made = api.recurring_runs[first.id]
    assert made["trigger"]["cron_schedule"] == {"cron": "0 0 3 * * 1-5", "start_time": "2026-12-01T00:00:00Z"}
    assert (made["max_concurrency"], made["no_catchup"]) == (2, True)
    assert made["runtime_config"] == {"parameters": {"epochs": 3}, "pipeline_root": "gs://bucket/root"}
    assert api.recurring_runs[second.id]["max_concurrency"] == 1

    def schedules(*words: str) -> Result:
        return CliRunner().invoke(main, ["schedules", *words, "--target", "kubeflow", "--host", api.url])

    assert schedules("pause", first.id).output == f"{first.id}: paused\n"
    listed = json.loads(schedules("list", "--output", "json").stdout)
    assert [(each["id"], each["state"], each["cron"]) for each in listed] == [
        (second.id, "enabled", "0 0 * * * *"),
        (first.id, "disabled", "0 0 3 * * 1-5"),
    ]
    assert schedules("resume", first.id).exit_code == 0
    assert api.recurring_runs[first.id]["status"] == "ENABLED"
    run = submit(api, "of the schedule")
    api.runs[run].recurring_run_id = second.id
    refused = schedules("delete", second.id)
    assert refused.exit_code == 2
    assert f"would delete the pods of run {run} with it" in refused.output
    api.set_state(run, "FAILED", {})
    assert schedules("delete", second.id).exit_code == 0
    assert "nightly" in schedules("list").output
    gone = schedules("pause", second.id)
    assert (gone.exit_code, f"Job {second.id} not found" in gone.output) == (2, True), gone.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cron", "0 3 * *"), "--cron: '0 3 * *' has 4 fields; write five"),
        (("--cron", "TZ=Europe/Rome 0 3 * * *"), "--cron: Kubeflow Pipelines has one time zone for all schedules"),
        (("--cron", "0 3 * * *", "--wait"), "--wait: is for one run, without --cron"),
        (("--no-catchup",), "--no-catchup: belongs to a schedule; write --cron too"),
        (("--labels", "a=b"), "--labels: goes with --target vertex"),
    ],
)
def test_schedules_that_are_refused(words, message, request):
    digits = str(request.config.rootpath / "examples" / "digits" / "kubeflow.yaml")
    refused = CliRunner().invoke(main, ["submit", digits, "--target", "kubeflow", *words])
    assert (refused.exit_code, message in refused.output) == (2, True), refused.output

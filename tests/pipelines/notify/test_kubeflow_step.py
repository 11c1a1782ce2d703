"""Tests which notification a run on Kubeflow Pipelines sends.

The API server is a stand-in of its published API; the metadata store is a real one.
"""

import json

import pytest
import webhook as webhooks
import yaml
from kfp_api import KfpApi
from metadata_service import PIPELINE, RUN, MetadataService
from ml_metadata.proto import metadata_store_pb2 as pb

from tfx_distribute.pipelines.notify import kubeflow_step
from tfx_distribute.pipelines.notify.kubeflow_step import Settings

LAST, THIS = "11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"
WHOLE = "exit-handler-1"
ALL = ("failed", "stopped", "not_blessed", "recovered", "succeeded")
PACKAGE = yaml.safe_dump({"pipelineInfo": {"name": "taxi"}, "schemaVersion": "2.1.0"})


@pytest.fixture
def services(monkeypatch):
    monkeypatch.setattr(kubeflow_step, "POLL_SECONDS", 0.05)
    with KfpApi() as api, MetadataService() as metadata, webhooks.receiving() as webhook:
        monkeypatch.setenv("NOTIFY_URLS", webhook.address)
        yield api, metadata, webhook


def start(services, **changes):
    """Runs the step of the run THIS, as its pod does; returns what was sent."""
    api, metadata, webhook = services
    settings = {
        "pipeline": "taxi",
        "urls": "NOTIFY_URLS",
        "when": ALL,
        "steps": ["CsvExampleGen", "ExampleValidator", "Trainer"],
        "whole": WHOLE,
        "validator": "ExampleValidator",
        "api_service": api.url.removeprefix("http://"),
        "metadata_service": metadata.address,
        "thresholds": {"AUC": ">= 0.8"},
        "page": "https://kubeflow.example.com/pipeline",
    }
    document = Settings(**{**settings, **changes}).to_json()
    assert kubeflow_step.main(["--run-id", THIS, "--settings", document]) == 0
    return webhook.messages


def begin(api, run, state, **tasks):
    api.add_run(run, PACKAGE)
    api.set_state(run, state, {name.replace("_", "-"): state for name, state in tasks.items()})


def record(metadata, kind, **properties):
    artifact = pb.Artifact(uri="s3://bucket/artifact")
    for name, value in properties.items():
        stored = artifact.custom_properties[name]
        if isinstance(value, str):
            stored.string_value = value
        else:
            stored.double_value = value
    metadata.record(kind, artifact, [metadata.context(PIPELINE, "taxi"), metadata.context(RUN, THIS)])


def evaluate(metadata, blessed, **properties):
    record(metadata, "tfx.Examples", spans="2026-11-25")
    record(metadata, "system.Metrics", AUC=0.9, ExampleCount=70.0, display_name="metrics")
    record(metadata, "tfx.ModelBlessing", blessed=float(blessed), **properties)


def test_a_run_that_succeeded(services):
    api, metadata, _ = services
    begin(api, LAST, "SUCCEEDED")
    begin(api, THIS, "RUNNING", Trainer="SUCCEEDED", exit_handler_1="SUCCEEDED")
    evaluate(metadata, blessed=True)
    record(metadata, "tfx.PushedModel", pushed_destination="/shared/serving/7")
    (message,) = start(services)
    assert (message["title"], message["type"]) == ("taxi: succeeded", "success")
    assert message["message"].splitlines() == [
        f"run: {THIS}",
        "spans: 2026-11-25",
        "AUC: 0.9 (>= 0.8)",
        "ExampleCount: 70",
        "model: /shared/serving/7",
        f"log: https://kubeflow.example.com/pipeline/#/runs/details/{THIS}",
        "host: Kubeflow Pipelines",
    ]


def test_outputs_by_name(services):
    api, metadata, _ = services
    begin(api, THIS, "RUNNING", Trainer="SUCCEEDED", exit_handler_1="SUCCEEDED")
    record(metadata, "system.Metrics", **{"late.AUC": 0.9, "late.ExampleCount": 70.0})
    (message,) = start(services)
    assert "\nlate.AUC: 0.9 (>= 0.8)\nlate.ExampleCount: 70\n" in message["message"]


def test_a_model_that_was_not_compared(services):
    api, metadata, _ = services
    begin(api, THIS, "RUNNING", Trainer="SUCCEEDED", exit_handler_1="SUCCEEDED")
    evaluate(metadata, blessed=True, unusable_baseline="/models/7 is not there any more")
    (message,) = start(services)
    expected = "\nbaseline: not compared with the latest blessed model: /models/7 is not there any more\n"
    assert expected in message["message"]


@pytest.mark.parametrize(
    ("last", "blessed", "when", "outcome"),
    [
        ("FAILED", True, ALL, "recovered"),
        ("FAILED", True, ["succeeded"], "succeeded"),
        ("FAILED", True, ["failed"], ""),
        ("FAILED", False, ALL, "not blessed"),
        ("CANCELED", True, ALL, "succeeded"),
    ],
)
def test_the_last_run_and_the_blessing(services, last, blessed, when, outcome):
    api, metadata, _ = services
    begin(api, LAST, last)
    begin(api, THIS, "RUNNING", exit_handler_1="SUCCEEDED")
    evaluate(metadata, blessed)
    assert [message["title"] for message in start(services, when=when)] == [f"taxi: {outcome}"] * bool(outcome)


@pytest.mark.parametrize(
    ("tasks", "title", "reason"),
    [
        ({"Trainer": "FAILED"}, "taxi: failed", "Trainer: its log says why"),
        (
            {"CsvExampleGen": "SUCCEEDED", "ExampleValidator": "FAILED"},
            "taxi: stopped",
            "ExampleValidator: its log says why",
        ),
        ({"ExampleValidator_driver": "FAILED"}, "taxi: failed", "ExampleValidator-driver: its log says why"),
        ({"Trainer": "CANCELED"}, "taxi: failed", "Kubeflow Pipelines does not say which step failed, or how the run ended"),
    ],
)
def test_a_run_that_failed(services, tasks, title, reason):
    begin(services[0], THIS, "RUNNING", **tasks, exit_handler_1="FAILED")
    evaluate(services[1], blessed=False)
    (message,) = start(services)
    assert message["title"] == title
    assert f"reason: {reason}\n" in message["message"]


def test_a_run_that_somebody_ended(services):
    begin(services[0], THIS, "CANCELING", Trainer="CANCELED", exit_handler_1="CANCELED")
    assert not start(services)


def test_the_server_learns_of_the_end_later(services):
    api = services[0]
    begin(api, THIS, "RUNNING", Trainer="RUNNING", exit_handler_1="RUNNING")
    polls = []

    def before(method, path):
        polls.append(path)
        if len(polls) == 3:
            api.set_state(THIS, "RUNNING", {"Trainer": "FAILED", WHOLE: "FAILED"})

    api.before = before
    api.fail(503)
    (message,) = start(services)
    assert message["title"] == "taxi: failed"


def test_an_installation_for_several_users(services, tmp_path, monkeypatch):
    (tmp_path / "token").write_text(f"{THIS}\n")
    monkeypatch.setattr(kubeflow_step, "TOKEN", tmp_path / "token")
    services[0].require_token = THIS
    begin(services[0], THIS, "RUNNING", Trainer="FAILED", exit_handler_1="FAILED")
    assert start(services)[0]["title"] == "taxi: failed"


def test_what_does_not_answer(services, monkeypatch, capsys):
    api, _, webhook = services
    monkeypatch.setattr(kubeflow_step, "END_SECONDS", 0.2)
    (message,) = start(services, api_service="127.0.0.1:1")
    assert message["title"] == "taxi: failed"
    assert "reason: the run has ended, but Kubeflow Pipelines at 127.0.0.1:1 does not say how: " in message["message"]

    webhook.messages.clear()
    begin(api, THIS, "RUNNING", Trainer="FAILED", exit_handler_1="FAILED")
    webhook.status = 500
    start(services)
    assert "not sent to json://127.0.0.1: " in capsys.readouterr().out
    monkeypatch.delenv("NOTIFY_URLS")
    start(services)
    assert "NOTIFY_URLS is not set" in capsys.readouterr().err


def test_settings_are_one_argument():
    text = Settings("taxi", "NOTIFY_URLS", ALL, ["Trainer"], WHOLE, "ExampleValidator", "a:1", "b:2").to_json()
    assert Settings(**json.loads(text)).to_json() == text


def test_a_model_without_thresholds_and_a_run_of_a_file(services):
    api, metadata, _ = services
    begin(api, LAST, "FAILED")
    begin(api, THIS, "RUNNING", exit_handler_1="SUCCEEDED")
    api.runs[THIS].reference = {}
    record(metadata, "tfx.ModelBlessing", display_name="blessing")
    assert start(services)[0]["title"] == "taxi: succeeded"


def test_an_end_that_nobody_tells(services, monkeypatch):
    monkeypatch.setattr(kubeflow_step, "END_SECONDS", 0.2)
    begin(services[0], THIS, "RUNNING", Trainer="RUNNING")
    assert start(services)[0]["title"] == "taxi: failed"

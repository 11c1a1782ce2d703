"""Tests which notification a run on Kubeflow Pipelines sends.

The API server is a stand-in of its published API; the metadata store is a real one.
"""

import pytest
import webhook as webhooks
import yaml
from kfp_api import KfpApi
from metadata_service import PIPELINE, RUN, MetadataService
from ml_metadata.proto import metadata_store_pb2 as pb

from tfx_distribute.components import timeouts
from tfx_distribute.pipelines.notify import kubeflow_step
from tfx_distribute.pipelines.notify.kubeflow_step import Settings

LAST, THIS = "11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"
STEPS = ["CsvExampleGen", "ExampleValidator", "Trainer"]
ALL = ("failed", "stopped", "not_blessed", "recovered", "succeeded")
PACKAGE = yaml.safe_dump({"pipelineInfo": {"name": "taxi"}, "schemaVersion": "2.1.0"})


@pytest.fixture
def services(monkeypatch):
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
        "steps": STEPS,
        "api_service": api.url.removeprefix("http://"),
        "metadata_service": metadata.address,
        "page": "https://kubeflow.example.com/pipeline",
    }
    document = Settings(**{**settings, **changes}).to_json()
    assert kubeflow_step.main(["--run-id", THIS, "--settings", document]) == 0
    return webhook.messages


def begin(services, state="RUNNING", **steps):
    """Begins the run THIS, whose steps have the given states; the others are done."""
    api, metadata, _ = services
    api.add_run(THIS, PACKAGE)
    api.set_state(THIS, state, {"exit-handler-1": "RUNNING"})
    contexts = [metadata.context(PIPELINE, "taxi"), metadata.context(RUN, THIS)]
    for name, state in {**dict.fromkeys(STEPS, "COMPLETE"), **steps}.items():
        if state:
            metadata.record_step(name, state, contexts)


def end_before(services, state):
    services[0].add_run(LAST, PACKAGE)
    services[0].set_state(LAST, state, {})


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
    record(metadata, "tfx.ModelBlessing", blessed=float(blessed), verdicts='{"AUC": ">= 0.8 met"}', **properties)


def test_a_run_that_succeeded(services):
    metadata = services[1]
    end_before(services, "SUCCEEDED")
    begin(services, CsvExampleGen="CACHED")
    evaluate(metadata, blessed=True)
    record(metadata, "tfx.PushedModel", pushed_destination="/shared/serving/7")
    (message,) = start(services)
    assert (message["title"], message["type"]) == ("taxi: succeeded", "success")
    assert message["message"].splitlines() == [
        f"run: {THIS}",
        "spans: 2026-11-25",
        "AUC: 0.9 (>= 0.8 met)",
        "ExampleCount: 70",
        "model: /shared/serving/7",
        f"log: https://kubeflow.example.com/pipeline/#/runs/details/{THIS}",
        "host: Kubeflow Pipelines",
    ]


def test_a_model_that_was_not_compared(services):
    metadata = services[1]
    begin(services)
    evaluate(metadata, blessed=True, unusable_baseline="/models/7 is not there any more")
    (message,) = start(services)
    expected = "\nbaseline: not compared with the latest blessed model: /models/7 is not there any more\n"
    assert expected in message["message"]


@pytest.mark.parametrize(
    ("last", "blessed", "outcome"),
    [("FAILED", True, "recovered"), ("FAILED", False, "not blessed"), ("CANCELED", True, "succeeded")],
)
def test_the_last_run_and_the_blessing(services, last, blessed, outcome):
    end_before(services, last)
    begin(services)
    evaluate(services[1], blessed)
    assert [message["title"] for message in start(services)] == [f"taxi: {outcome}"]


@pytest.mark.parametrize(
    ("steps", "title", "reason"),
    [
        ({"Trainer": "FAILED"}, "taxi: failed", "Trainer: its log says why"),
        ({"ExampleValidator": "FAILED", "Trainer": ""}, "taxi: stopped", "ExampleValidator: its log says why"),
        ({"ExampleValidator": "RUNNING", "Trainer": "FAILED"}, "taxi: failed", "Trainer: its log says why"),
        ({"Trainer": "RUNNING"}, "taxi: failed", "Trainer: its pod ended without reporting a result"),
        (
            {"ExampleValidator": "", "Trainer": ""},
            "taxi: failed",
            "not started: ExampleValidator, Trainer; the page of the run says why",
        ),
    ],
)
def test_a_run_that_failed(services, steps, title, reason):
    begin(services, **steps)
    evaluate(services[1], blessed=False)
    (message,) = start(services)
    assert message["title"] == title
    assert f"reason: {reason}\n" in message["message"]


def test_a_run_that_somebody_ended(services):
    begin(services, "CANCELING", Trainer="RUNNING")
    assert not start(services)


def test_outcomes_that_nobody_asks_for(services):
    begin(services)
    assert not start(services, when=["failed"])


def test_an_installation_for_several_users(services, tmp_path, monkeypatch):
    (tmp_path / "token").write_text(f"{THIS}\n")
    monkeypatch.setattr(kubeflow_step, "TOKEN", tmp_path / "token")
    services[0].require_token = THIS
    end_before(services, "FAILED")
    begin(services)
    assert start(services)[0]["title"] == "taxi: recovered"


def test_what_does_not_answer(services, monkeypatch, capsys):
    webhook = services[2]
    begin(services, Trainer="FAILED")
    assert start(services, api_service="127.0.0.1:1")[0]["title"] == "taxi: failed"

    webhook.messages.clear()
    monkeypatch.setattr(timeouts, "METADATA_RETRY_SECONDS", 0.2)
    (message,) = start(services, metadata_service="127.0.0.1:1")
    assert "but its steps could not be read: targets.kubeflow.metadata_service: " in message["message"]

    webhook.messages.clear()
    webhook.status = 500
    start(services)
    assert "not sent to json://127.0.0.1: " in capsys.readouterr().out
    monkeypatch.delenv("NOTIFY_URLS")
    start(services)
    assert "NOTIFY_URLS is not set" in capsys.readouterr().err


def test_a_model_without_thresholds_and_a_run_of_a_file(services):
    end_before(services, "FAILED")
    begin(services)
    services[0].runs[THIS].reference = {}
    record(services[1], "tfx.ModelBlessing", display_name="blessing")
    assert start(services)[0]["title"] == "taxi: succeeded"

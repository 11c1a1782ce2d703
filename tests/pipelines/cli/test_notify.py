"""Tests notifications about runs."""

import re

import pytest
import webhook
from small_project import PIPELINE, write_project

from tfx_distribute.pipelines.cli import notify
from tfx_distribute.pipelines.notify.message import Ending
from tfx_distribute.pipelines.targets.local.paths import RunPaths

VARIABLE = "RUNS_GO_TO"
NOTIFY = f"notify: {{urls: {VARIABLE}}}\n"


@pytest.fixture
def receiver(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with webhook.receiving() as running:
        monkeypatch.setenv(VARIABLE, running.address)
        yield running


@pytest.fixture
def file(tmp_path):
    return write_project(tmp_path, PIPELINE + NOTIFY)


@pytest.mark.parametrize(
    ("notify", "message"),
    [
        ("{urls: 'json://host/secret'}", "notify.urls: is not the name of an environment variable, such as NOTIFY_URLS;"),
        ("{urls: A, when: [broken]}", "notify.when.0: 'broken' is not allowed"),
        ("{urls: A, when: []}", "notify.when: [] is not allowed"),
        ("{}", "notify.urls: is missing"),
        ("", "notify: is empty"),
    ],
)
def test_settings_that_are_refused(command, file, notify, message):
    file.write_text(f"{PIPELINE}notify: {notify}\n")
    refused = command("validate", file)
    assert (refused.code, message in refused.output) == (2, True), refused.output


def test_a_test_message(command, file, receiver):
    sent = command("notify", file, "--test")
    assert (sent.code, sent.output) == (0, "sent to json://127.0.0.1\n")
    (received,) = receiver.messages
    assert received["title"] == "mine: test"
    assert re.fullmatch(r"Messages about runs of mine arrive here\.\nhost: \S+", received["message"])
    assert command("notify", file).output == "json://127.0.0.1\n"

    receiver.status = 500
    failed = command("notify", file, "--test")
    assert failed.code == 1
    assert re.search(r"^Error: not sent to json://127\.0\.0\.1: .*error=500", failed.output), failed.output
    assert len(receiver.messages) == 2


def test_a_test_message_that_nobody_can_get(command, file, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    failed = command("notify", file, "--test")
    assert failed.code == 1
    assert failed.output.startswith(f"Error: notify.urls: the environment variable {VARIABLE} is not set")
    file.write_text(PIPELINE)
    refused = command("notify", file, "--test")
    assert (refused.code, "notify: is missing in" in refused.output) == (2, True)


def test_a_missing_variable_is_a_warning(command, file, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    validated = command("validate", file)
    assert validated.code == 0
    assert f"Warning: notify.urls: the environment variable {VARIABLE} is not set, so no" in validated.output


def test_a_run_that_is_refused(command, file, receiver):
    (file.parent / "data" / "a.csv").unlink()
    refused = command("run", file)
    assert refused.code == 2
    (received,) = receiver.messages
    assert received["title"] == "mine: failed"
    run_error = refused.output.removeprefix("Error: ").strip()
    assert f"reason: {run_error}" in received["message"]


def test_a_folder_in_use_is_not_news(command, file, receiver, tmp_path):
    """An hourly run that finds the one before it in its folder."""
    from tfx_distribute.components.launchers import locks

    with locks.exclusive(str(tmp_path / "runs"), "the run folder", "wait"):
        refused = command("run", file, "--root", tmp_path / "runs")
    assert (refused.code, "is in use by process" in refused.output) == (2, True), refused.output
    assert receiver.messages == []


def test_a_pushed_model_that_was_not_compared(file, receiver, tmp_path, monkeypatch):
    from tfx_distribute.components.report.data import Artifact
    from tfx_distribute.pipelines.cli.console import Console
    from tfx_distribute.pipelines.spec import loader
    from tfx_distribute.pipelines.targets.local import runs

    file.write_text(f"{PIPELINE}notify: {{urls: {VARIABLE}, when: [succeeded]}}\n")
    paths = RunPaths(tmp_path, tmp_path / "logs" / "20260131-120000-000000", tmp_path / "serving")
    properties = {
        "ModelBlessing": {"blessed": 1, "unusable_baseline": "its AUC is\x1b[2J not finite"},
        "PushedModel": {"pushed": 1, "pushed_destination": "/s/1"},
    }
    made = [Artifact("Node", "", kind, 1, "/a", properties=each) for kind, each in properties.items()]
    run = runs.Run(paths.run_id, "mine", tmp_path, "complete", 0.0, 1.0, (), tuple(made))
    monkeypatch.setattr(runs, "iterate_runs", lambda roots: iter([run]))
    notify.tell_end(loader.load(str(file)), paths, Console(), Ending(0))
    (received,) = receiver.messages
    assert received["message"].splitlines()[1:3] == [
        r"baseline: not compared with the latest blessed model: its AUC is\x1b[2J not finite",
        "model: /s/1",
    ]

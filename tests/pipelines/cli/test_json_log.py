import io
import json
import math

import pytest
from click.testing import CliRunner

from tfx_distribute.pipelines.cli import console, json_log
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.reporting.progress import Progress


def test_a_refusal_is_one_line():
    result = CliRunner().invoke(main, ["run", "nope\n.yaml", "--log-format", "json"])
    (line,) = result.output.splitlines()
    event = json.loads(line)
    assert (result.exit_code, event["event"], event["severity"]) == (2, "message", "ERROR")
    assert event["message"].startswith("Error: nope")


def test_events_of_a_run(monkeypatch):
    output, now = io.StringIO(), 0.0
    view = console.make_view(json_log.JsonConsole(file=output))
    monkeypatch.setattr(json_log.time, "monotonic", lambda: now)
    view.on_node("Trainer")
    for step in range(1, 3600):
        now += 1.0
        view.training_progressed(CHIEF_TASK, Progress("train", step, 3600, 64.0, metrics={"loss": math.nan}, epochs=3))
    view.training_progressed(ClusterTask("worker", 0), Progress("train", 9, message="saved after training step 9"))
    view.on_node("Trainer", 3600.25)
    view._console.print("failed", style="red")
    lines = output.getvalue().splitlines()
    first, *training, saved, ended, failed = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert (first["event"], first["node"], first["message"]) == ("node_started", "Trainer", "Trainer has started")
    assert 20 < len(training) < 60, "an hour of reports"
    event = training[-1]
    assert (event["event"], event["task"], event["phase"], event["train_steps"]) == ("training", "chief-0", "train", 3600)
    assert event["metrics"] == {"loss": "NaN"}
    assert event["seconds_left"] == 3600 - event["step"]
    assert event["message"].startswith(f"chief: epoch 0/3  step {event['step']}/3600  loss nan  64 examples/s  ")
    assert (saved["task"], saved["message"]) == ("worker-0", "saved after training step 9")
    assert (ended["event"], ended["seconds"], ended["cached"]) == ("node_ended", 3600.25, False)
    assert (failed["event"], failed["severity"], failed["message"]) == ("message", "ERROR", "failed")
    assert failed["time"].endswith("+00:00")

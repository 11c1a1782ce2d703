"""Tests a comparison of trainings as a user runs it."""

import json

import example_project
import pytest

from tfx_distribute.pipelines.targets.local import runs

pytestmark = pytest.mark.e2e

MULTI = "strategy=multi_worker_mirrored"
FAILS = """\
    if isinstance(tf.distribute.get_strategy(), tf.distribute.OneDeviceStrategy):
        raise ValueError("one device is too few")
"""


def test_workers_are_compared_on_the_same_data(command, tmp_path):
    """One combination cannot be trained, one fails, and the others are measured."""
    file = example_project.copy(tmp_path / "project", "digits")
    head, signature, body = file.with_name("model.py").read_text().partition("def build_model(context):\n")
    file.with_name("model.py").write_text(head + signature + FAILS + body)
    done = command(
        "compare",
        file,
        *("-p", "strategy=one_device,multi_worker_mirrored", "-p", "num_workers=1,2"),
        *("--train-steps", "60", "--output", "json"),
    )
    assert done.code == 1, done.output
    progress, brace, text = done.output.partition("\n{\n")
    assert "one_device num_workers=2: skipped: num_workers: strategy 'one_device' trains in one process" in progress
    document = json.loads(brace + text)
    failed, skipped, one, two = document["combinations"]
    assert (failed["status"], skipped["status"]) == ("failed", "skipped")
    assert failed["reason"].endswith("ValueError: one device is too few")
    for combination, workers in ((one, 1), (two, 2)):
        assert combination["status"] == "measured", done.output
        assert (combination["processes"], combination["devices"]) == (workers, workers)
        assert combination["batch"] == 32 * workers
        speed = (60 - 3) * 32 * workers / combination["seconds"]
        assert combination["examples_per_second"] == pytest.approx(speed)
        assert 0 <= combination["input_share"] <= 1
        assert 0 < combination["loss"] < 3
    assert (one["wait_share"], one["efficiency"]) == (None, 1.0)
    assert 0 < two["wait_share"] < 1
    assert two["efficiency"] == pytest.approx(two["examples_per_second"] / one["examples_per_second"] / 2)
    assert any("does not show how the training scales over machines" in sentence for sentence in document["advice"])

    root = tmp_path / "runs" / "digits"
    assert [path.name for path in root.iterdir()] == ["compare"], "the pipeline itself has not run"
    last, _, first = compared = list(runs.iterate_runs([root / "compare"]))
    assert [run.state for run in compared] == ["complete", "complete", "failed"]
    nodes = ["DigitsExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Sharder"]
    assert [node.name for node in first.nodes if node.state == "complete"] == nodes
    assert [node.name for node in last.nodes if node.state == "cached"] == nodes
    assert not [*root.rglob("state.json")], "a comparison leaves no saved state"

    again = command("compare", file, "-p", MULTI, "--train-steps", "60", "--output", "json")
    latest = runs.find([root / "compare"], None)
    assert (again.code, latest.nodes[-1].name, latest.nodes[-1].state) == (0, "Trainer", "complete"), "trained again"

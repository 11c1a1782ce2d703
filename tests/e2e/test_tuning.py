"""Tests searches whose trials really train, as a user runs them."""

import json
import os
import re
import signal
from pathlib import Path

import example_project
import pytest
from running import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SPACE = {"learning_rate": {"min": 0.0001, "max": 0.1, "sampling": "log"}, "hidden_units": {"values": [16, 32, 64]}}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Returns the folder of all runs; nodes before the search come from the cache."""
    return tmp_path_factory.mktemp("runs")


def write_pipeline(folder: Path, module: str = "", **tune: object) -> Path:
    """Writes the digits' pipeline with a search."""
    tune = {"objective": "val_accuracy", "space": SPACE, **tune}
    file = example_project.copy(folder / "project", "digits", tune=tune, evaluate=None, push=None)
    head = "def build_model(context):\n"
    model = file.with_name("model.py")
    model.write_text(model.read_text().replace(head, head + module))
    return file


def artifacts(root: Path, name: str) -> Path:
    # A killed attempt leaves an empty one.
    folders = (root / "artifacts" / "Tuner" / name).iterdir()
    return max(folders, key=lambda folder: int(folder.name))


def trials_of(root: Path) -> list[dict]:
    return [json.loads(line) for line in (artifacts(root, "tuner_results") / "trials.jsonl").read_text().splitlines()]


def states_of(root: Path) -> list[Path]:
    # Training renames folders meanwhile, which os.walk tolerates.
    walk = os.walk(root / "artifacts" / "Tuner" / ".checkpoints")
    return [Path(folder, name) for folder, _, names in walk for name in names]


def test_killed_search_continues_its_trial(command, forked, root, tmp_path):
    """Kills the command in the middle of the second trial, and gives it again."""
    file = write_pipeline(tmp_path, max_trials=3, epochs=15)
    arguments = ["--root", root, "-p", "epochs=2", "-p", "save_checkpoints_steps=50"]  # however fast the machine is
    log = tmp_path / "killed.log"
    with log.open("wb") as output:
        words = ["-m", "tfx_distribute.pipelines", "run", file, *arguments]
        run = forked.start(words, {**os.environ, "TMPDIR": str(tmp_path)}, tmp_path, output)
    try:
        wait_until(lambda: any(path.match("trial-1/state/*/state.json") for path in states_of(root)), 240)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert "trial 2 " not in log.read_text()

    done = command("run", file, *arguments)
    assert done.code == 0, done.output
    assert "continues the search, of which 1 trials are done" in done.output
    assert re.findall(r"^ +trial (\d) \(", done.output, re.M) == ["1", "2"]
    assert re.search(r"trial 1 \(.*\n +continues after training step [1-9]", done.output), done.output
    trials = trials_of(root)
    assert sorted(trial["trial"] for trial in trials) == ["0", "1", "2"]
    assert {trial["step"] for trial in trials} == {15 * 46}
    best = json.loads((artifacts(root, "best_hyperparameters") / "best_hyperparameters.txt").read_text())
    assert best["values"] == trials[0]["hparams"]
    assert trials[0]["score"] == max(trial["score"] for trial in trials) > 0.9
    table = re.search(r"^trial  val_accuracy  steps  hidden_units  learning_rate\n(.*\n.*\n.*)\n", done.output, re.M)
    assert [line.split()[0] for line in table.group(1).splitlines()] == [trial["trial"] for trial in trials]
    assert f"{best['values']['hidden_units']}" == table.group(1).splitlines()[0].split()[3]
    assert len(list(artifacts(root, "tuner_results").glob("logs/trial-*/train/*"))) >= 3
    assert states_of(root) == []


def test_failed_trials_and_trials_at_the_same_time(command, root, tmp_path):
    module = '    if context.hparams["hidden_units"] == 32:\n        raise ValueError("32 is too many")\n'
    space = {"hidden_units": {"values": [16, 32, 64]}}
    file = write_pipeline(tmp_path, module, max_trials=3, num_parallel_trials=2, epochs=1, space=space)
    done = command("run", file, "--root", root, "-p", "epochs=2")
    assert done.code == 0, done.output
    assert re.search(r"trial \d failed: training process chief failed .*ValueError: 32 is too many", done.output)
    trials = trials_of(root)
    assert [trial["status"] for trial in trials] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert (trials[2]["hparams"], trials[2]["score"]) == ({"hidden_units": 32}, None)

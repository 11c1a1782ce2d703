"""Tests searches whose trials really train, as a user runs them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from running import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SPACE = {"learning_rate": {"min": 0.0001, "max": 0.1, "sampling": "log"}, "hidden_units": {"values": [16, 32, 64]}}
WORKERS = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")


@pytest.fixture
def pipeline(request, tmp_path):
    """Returns a function that writes the digits' pipeline with a search."""
    digits = request.config.rootpath / "examples" / "digits"

    def write(module: str = "", **tune: object) -> Path:
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        for name in ("model.py", "digits_data.py"):
            (folder / name).write_text((digits / name).read_text())
        if module:
            head = "def build_model(context):\n"
            (folder / "model.py").write_text((folder / "model.py").read_text().replace(head, head + module))
        document = yaml.safe_load((digits / "pipeline.yaml").read_text())
        document["trainer"]["parameters"]["epochs"] = 2
        del document["evaluate"], document["push"]
        document["tune"] = {"objective": "val_accuracy", "space": SPACE, **tune}
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        return folder / "pipeline.yaml"

    return write


def artifacts(tmp_path: Path, name: str) -> Path:
    # A killed attempt leaves an empty one.
    folders = (tmp_path / "runs" / "digits" / "artifacts" / "Tuner" / name).iterdir()
    return max(folders, key=lambda folder: int(folder.name))


def trials_of(tmp_path: Path) -> list[dict]:
    return [json.loads(line) for line in (artifacts(tmp_path, "tuner_results") / "trials.jsonl").read_text().splitlines()]


def states_of(tmp_path: Path) -> list[Path]:
    root = tmp_path / "runs" / "digits" / "artifacts" / "Tuner" / ".checkpoints"
    # Training renames folders meanwhile, which os.walk tolerates.
    return [Path(folder, name) for folder, _, names in os.walk(root) for name in names]


def test_killed_search_continues_its_trial(command, pipeline, tmp_path):
    """Kills the command in the middle of the second trial, and gives it again."""
    file = pipeline(max_trials=3, epochs=20)
    arguments = [*WORKERS, "-p", "save_checkpoints_steps=100"]  # however fast the machine is
    log = tmp_path / "killed.log"
    with log.open("wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "tfx_distribute.pipelines", "run", file, *arguments],
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    try:
        wait_until(lambda: any(path.match("trial-1/state/*/state.json") for path in states_of(tmp_path)), 240)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert "trial 2 " not in log.read_text()

    done = command("run", file, *arguments)
    assert done.code == 0, done.output
    assert "continues the search, of which 1 trials are done" in done.output
    assert re.findall(r"^ +trial (\d) \(", done.output, re.M) == ["1", "2"]
    assert re.search(r"trial 1 \(.*\n +continues after training step [1-9]", done.output), done.output
    trials = trials_of(tmp_path)
    assert sorted(trial["trial"] for trial in trials) == ["0", "1", "2"]
    assert {trial["step"] for trial in trials} == {20 * 23}
    best = json.loads((artifacts(tmp_path, "best_hyperparameters") / "best_hyperparameters.txt").read_text())
    assert best["values"] == trials[0]["hparams"]
    assert trials[0]["score"] == max(trial["score"] for trial in trials) > 0.9
    table = re.search(r"^trial  val_accuracy  steps  learning_rate  hidden_units\n(.*\n.*\n.*)\n", done.output, re.M)
    assert [line.split()[0] for line in table.group(1).splitlines()] == [trial["trial"] for trial in trials]
    assert f"{best['values']['hidden_units']}" == table.group(1).splitlines()[0].split()[-1]
    assert len(list(artifacts(tmp_path, "tuner_results").glob("logs/trial-*/train/*"))) >= 3
    assert states_of(tmp_path) == []

    again = command("run", file, *arguments)
    assert re.search(r"✓ Tuner +cached", again.output), again.output
    assert table.group(0) in again.output, "the table of trials is shown from the cache too"


def test_failed_trials_and_trials_at_the_same_time(command, pipeline, tmp_path):
    module = '    if context.hparams["hidden_units"] == 32:\n        raise ValueError("32 is too many")\n'
    space = {"hidden_units": {"values": [16, 32, 64]}}
    file = pipeline(module, max_trials=3, num_parallel_trials=2, epochs=1, space=space)
    done = command("run", file)
    assert done.code == 0, done.output
    assert re.search(r"trial \d failed: training process chief failed .*ValueError: 32 is too many", done.output)
    trials = trials_of(tmp_path)
    assert [trial["status"] for trial in trials] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert (trials[2]["hparams"], trials[2]["score"]) == ({"hidden_units": 32}, None)

"""Tests which files of old runs are removed."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tfx_distribute.components.launchers import locks
from tfx_distribute.components.report.data import Artifact
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.targets.local import pruning, runs
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def make_run(tmp_path):
    """Returns a function that makes a run with folders of artifacts and logs."""

    def make(number, *artifacts, state="complete", **properties):
        logs = tmp_path / "logs" / str(number)
        logs.mkdir(parents=True)
        made = []
        for kind, name in artifacts:
            folder = tmp_path / "artifacts" / "Node" / "output" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "file").write_text("12345")
            made.append(Artifact("Node", "output", kind, 1, str(folder), properties=properties.get(kind, {})))
        return runs.Run(str(number), "mine", tmp_path, state, float(number), 1.0, (), tuple(made), logs=logs)

    return make


def plan(root, listed, keep):
    made = pruning.make_plan(root, sorted(listed, key=lambda run: -run.started), keep)
    return [run.id for run in made.runs], {str(folder.relative_to(root)) for folder in made.folders}


def test_what_newer_runs_have_from_the_cache_stays(make_run, tmp_path):
    first = make_run(1, ("Examples", "a"), ("Model", "b"), ("PushedModel", "c"))
    second = make_run(2, ("Examples", "a"), ("Model", "d"))
    last = make_run(3, ("Examples", "a"), ("Model", "e"))
    assert plan(tmp_path, [first, second, last], 3) == ([], set())
    names, folders = plan(tmp_path, [first, second, last], 1)
    assert names == ["2", "1"]
    assert folders == {"logs/1", "logs/2", "artifacts/Node/output/b", "artifacts/Node/output/d"}, "pushed ones stay too"
    made = pruning.make_plan(tmp_path, [last, second, first], 1)
    assert made.num_bytes == 10


def test_running_ones_stay(make_run, tmp_path):
    listed = [make_run(1, ("Model", "a"), state="running"), make_run(2, ("Model", "b")), make_run(3, ("Model", "c"))]
    assert plan(tmp_path, listed, 1) == (["2"], {"logs/2", "artifacts/Node/output/b"})


def test_a_served_and_the_last_blessed_model_stay(make_run, tmp_path):
    version = tmp_path / "serving" / "100"
    version.mkdir(parents=True)
    pushed = {"pushed": 1, "pushed_destination": str(version)}
    listed = [
        make_run(1, ("Model", "a"), ("PushedModel", "p"), PushedModel=pushed),
        make_run(2, ("Model", "b"), ("ModelBlessing", "x"), ModelBlessing={"blessed": 1}),
        make_run(3, ("Model", "c"), ("ModelBlessing", "y"), ModelBlessing={"blessed": 1}),
        make_run(4, ("Model", "d"), ("ModelBlessing", "z"), ModelBlessing={"blessed": 0}),
    ]
    names, _ = plan(tmp_path, listed, 1)
    assert names == ["2"]


def test_models_of_other_folders_and_states_of_newer_trainings_stay(make_run, tmp_path):
    outside = Artifact("base-model", "result", "Model", 1, str(tmp_path / "model"))
    (tmp_path / "model").mkdir()
    old = make_run(1000)
    old = runs.Run(**{**vars(old), "artifacts": (outside,)})
    for name, at in (("old", 500), ("new", 3000)):
        state = tmp_path / "artifacts" / "Trainer" / ".checkpoints" / name
        state.mkdir(parents=True)
        (state / "identity.json").write_text("{}")
        for path in (state / "identity.json", state):
            os.utime(path, (at, at))
    _, folders = plan(tmp_path, [old, make_run(2000)], 1)
    assert folders == {"logs/1000", "artifacts/Trainer/.checkpoints/old"}


def test_nothing_is_removed_while_a_run_is_using_the_folder(tmp_path):
    with locks.exclusive(str(tmp_path), "the run folder", "wait"), pytest.raises(ConfigurationError, match="run folder"):
        pruning.prune(tmp_path, 1)


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(main, ["runs", "prune"])
    assert (refused.exit_code, "there are no runs" in refused.output) == (2, True)
    folder = Path("runs/mine")
    folder.mkdir(parents=True)
    (folder / runs.METADATA_FILE).touch()
    done = CliRunner().invoke(main, ["runs", "prune", "--keep", "1"])
    assert (done.exit_code, done.output) == (0, "runs/mine: removed 0 runs, 0 folders, 0.0 MB\n")

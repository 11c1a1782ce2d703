"""Tests the commands for runs on this machine: what they refuse, and logs."""

import dataclasses
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from tfx_distribute.components.report.data import Artifact, Cell, Evaluation, Slice
from tfx_distribute.pipelines.cli import runs
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.targets.local import results
from tfx_distribute.pipelines.targets.local.runs import Run


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """Returns a run whose Trainer has not run; commands find it."""
    logs = tmp_path / "logs" / "20260131-120000-000000"
    (logs / "trial-1").mkdir(parents=True)
    (logs / "trial-1" / "chief-0.log").write_bytes(b"step 1\n\xff\n")
    made = Run(logs.name, "digits", tmp_path, "failed", 1769860800.0, 83.0, (), logs=logs)
    monkeypatch.setattr(runs, "list_local", lambda root, limit: [made])
    monkeypatch.setattr(runs, "find_local", lambda root, name: made)
    return made


@pytest.mark.parametrize(
    "arguments",
    [
        ("report",),
        ("models", "list"),
        ("runs", "list"),
        ("runs", "show"),
        ("runs", "logs", "20260131"),
        ("runs", "compare", "a", "b"),
        ("schema", "show"),
    ],
)
def test_without_runs(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command(*arguments)
    message = "Error: --root: there are no runs in runs/; write the folder that `run` wrote to\n"
    assert (done.exit_code, done.output) == (2, message)


def test_list_and_logs(run, monkeypatch):
    head, row = command("runs", "list").output.splitlines()
    assert (head.split()[-1], row.split()[:3]) == ("duration", [run.id, "digits", "failed"])
    day = Artifact("CsvExampleGen", "examples", "Examples", 1, "examples", properties={"spans": "2026-11-25"})
    monkeypatch.setattr(runs, "list_local", lambda root, limit: [dataclasses.replace(run, artifacts=(day,)), run])
    head, row, _ = command("runs", "list").output.splitlines()
    assert (head.split()[-1], row.split()[-1]) == ("spans", "2026-11-25")
    monkeypatch.setattr(runs, "list_local", lambda root, limit: [run])
    (document,) = json.loads(command("runs", "list", "--output", "json").output)
    assert (document["id"], document["seconds"]) == (run.id, 83.0)
    assert command("runs", "logs").output.split() == ["trial-1/chief-0", str(run.logs / "trial-1" / "chief-0.log")]
    assert command("runs", "logs", "--process", "trial-1/chief-0").output == "step 1\n\ufffd\n"
    unknown = command("runs", "logs", "--process", "../../secret")
    assert unknown.output == (f"Error: --process: {run.id} has no log of '../../secret'; it has those of trial-1/chief-0\n")


def finish(run, monkeypatch, state="complete", **blessing) -> None:
    """Makes the run one whose Evaluator has written a blessing; commands find it."""
    artifact = Artifact("Evaluator", "blessing", "ModelBlessing", 1, "/gone", properties=blessing)
    made = dataclasses.replace(run, state=state, artifacts=(artifact,))
    monkeypatch.setattr(runs, "list_local", lambda root, limit: [made])
    monkeypatch.setattr(runs, "find_local", lambda root, name: made)


@pytest.mark.parametrize(
    ("state", "blessing", "shown", "blessed"),
    [
        ("complete", {"blessed": 0}, "not blessed", False),
        ("complete", {"blessed": 1}, "complete", True),
        ("complete", {}, "complete", None),
        ("failed", {"blessed": 0}, "failed", False),
    ],
)
def test_state_of_a_run_that_was_not_blessed(run, monkeypatch, state, blessing, shown, blessed):
    """It is only shown: its state stays what others compare with."""
    finish(run, monkeypatch, state, **blessing)
    assert command("runs", "list").output.splitlines()[1].split("  ")[2] == shown
    (document,) = json.loads(command("runs", "list", "--output", "json").output)
    assert (document["state"], document["blessed"]) == (state, blessed)


def test_show_has_the_verdict(run, monkeypatch):
    finish(run, monkeypatch, blessed=0, unusable_baseline="its Loss is not finite")
    cells = {"AUC": Cell(0.72, 0.95, True, -0.23), "Count": Cell(9.0), "Loss": Cell(0.5)}
    evaluation = Evaluation(
        (Slice("", cells), Slice("hour=1", {"Loss": Cell(0.7, failed=True)})),
        thresholds={"AUC": ">= 0.43, change of at least -0.2", "Loss": "<= 0.6", "No value": ">= 0"},
        blessed=False,
    )
    monkeypatch.setattr(results, "read_evaluation", lambda run: (evaluation, ()))
    lines = command("runs", "show").output.splitlines()
    assert lines[2] == "state     not blessed"
    assert lines[5] == "blessed   no: thresholds are not met"
    assert [line.rstrip() for line in lines[7:11]] == [
        "AUC       0.72  >= 0.43, change of at least -0.2 not met: -0.23 from the blessed model's 0.95",
        "Count     9",
        "Loss      0.5   <= 0.6 not met on 1 slice (hour=1)",
        "baseline  not compared with the latest blessed model: its Loss is not finite",
    ]
    document = json.loads(command("runs", "show", "--output", "json").output)
    assert document["metrics"] == {"AUC": 0.72, "Count": 9.0, "Loss": 0.5}
    assert document["verdicts"]["Loss"] == "not met on 1 slice (hour=1)"
    assert document["thresholds"]["Loss"] == "<= 0.6"


def test_one_message_for_what_cannot_be_done(run):
    for arguments, message in (
        (("runs", "tensorboard"), f"RUN: {run.id} has no TensorBoard logs; no Trainer finished, or they were deleted"),
        (("runs", "list", "--host", "http://x"), "--host: goes with --target kubeflow, not with --target local"),
    ):
        done = command(*arguments)
        assert (done.exit_code, done.output) == (2, f"Error: {message}\n")


def test_report_that_cannot_be_written(run):
    done = command("report", "-o", "/proc/x.html")
    assert (done.exit_code, done.output) == (2, "Error: /proc/x.html: No such file or directory\n")


def test_tensorboard_replaces_the_command(run, monkeypatch):
    from tfx_distribute.pipelines.targets.local import results

    started = []
    monkeypatch.setattr(runs.os, "execv", lambda program, arguments: started.append((program, arguments)))
    monkeypatch.setattr(results, "find_tensorboard_folders", lambda found: {"Trainer": "/run", "Tuner": "/trials/logs"})
    assert command("runs", "tensorboard", "--port", "7007").exit_code == 0
    expected = ["-m", "tensorboard.main", "--logdir_spec", "Trainer:/run,Tuner:/trials/logs", "--port=7007"]
    assert started == [(sys.executable, [sys.executable, *expected])]


def test_cancel_ends_the_process_of_a_run_here(run, monkeypatch, tmp_path):
    done = command("runs", "cancel", run.id)
    assert done.output == f"Error: RUN: {run.id} has ended (failed); `tfx-distribute runs list` shows which are running\n"
    running = dataclasses.replace(run, state="running", root=tmp_path / "root")
    monkeypatch.setattr(runs, "find_local", lambda root, name: running)
    holds = (
        "import sys, time\nfrom tfx_distribute.components.launchers import locks, sigterm\n"
        f"with sigterm.terminable(), locks.exclusive({str(running.root)!r}, 'it', 'wait'):\n"
        "    print('holds', flush=True)\n    time.sleep(120)\n"
    )
    with subprocess.Popen([sys.executable, "-c", holds], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"holds\n"
        done = command("runs", "cancel", run.id)
        assert done.output == f"{run.id}: sent SIGTERM to process {process.pid}; it ends when it has saved its training\n"
        assert process.wait(60) != 0
    assert command("runs", "cancel", run.id).exit_code == 2, "its process has gone"


def test_a_run_is_not_compared_with_itself(run):
    done = command("runs", "compare", "one", "two")
    assert (done.exit_code, done.output) == (2, "Error: RUN: one, two: the same run twice; write another\n")

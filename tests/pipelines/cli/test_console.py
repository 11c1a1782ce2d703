import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from tfx_distribute.components.report.data import Artifact, Cell, Evaluation, Slice
from tfx_distribute.pipelines.cli import console
from tfx_distribute.pipelines.targets.local import results, runs
from tfx_distribute.pipelines.targets.local.paths import RunPaths
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.reporting.progress import Progress

WORKER, SERVER = ClusterTask("worker", 0), ClusterTask("ps", 0)
TRAINING = {"strategy": "mirrored", "num_replicas": 2, "global_batch_size": 64, "train_steps": 440}


def summarize(training, evaluation=None, **artifacts):
    """Returns the lines about a run with a model and other artifacts."""
    properties = {"ModelRun": {}, "Model": training, **artifacts}
    made = [Artifact("Trainer", "", kind, 1, "/m", properties=each) for kind, each in properties.items()]
    run = runs.Run("1", "digits", Path(), "complete", 0.0, 1.0, (), tuple(made))
    return [line.rstrip() for line in str(console.format_facts([*results.list_facts(run, evaluation)])).splitlines()]


def test_summary_says_where_time_went():
    times = {"time_compute": 0.62, "time_wait_for_peers": 0.3, "time_input": 0.076, "time_save": 0.004}
    slowest = {"slowest_process": "worker-0", "slowest_process_holds_back": 0.3, "slowest_process_reason": "busy_core"}
    assert summarize({**TRAINING, **times, **slowest})[1:3] == [
        "time     compute 62 %, waiting for peers 30 %, input 8 %",
        "slowest  worker 0 holds the others back for 30 % of the time: its threads wait for a core: give it more cores, or "
        "stop what else runs there",
    ]


def test_commands_of_a_run_that_left_no_curves(tmp_path, monkeypatch, capsys):
    """Nor has one that did not come to its first node a report."""
    paths = RunPaths(tmp_path, tmp_path / "logs" / "20260131-120000-000000", tmp_path / "serving")
    (tmp_path / "metadata.sqlite").touch()
    console.print_commands(console.Console(soft_wrap=True), paths)
    assert capsys.readouterr().out.split() == ["log", str(paths.log)]
    run = runs.Run(paths.run_id, "digits", tmp_path, "failed", 0.0, 1.0, ())
    monkeypatch.setattr(runs, "find", lambda roots, name: run)
    console.print_commands(console.Console(soft_wrap=True), paths)
    assert capsys.readouterr().out.split()[:4] == ["report", "tfx-distribute", "report", paths.run_id]
    monkeypatch.setattr(results, "find_tensorboard_folders", lambda found: {"Trainer": "/run"})
    console.print_commands(console.Console(soft_wrap=True), paths)
    assert "curves   tfx-distribute runs tensorboard" in capsys.readouterr().out


def test_lines_without_a_terminal_become_rare(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.RunView(console.Console()) as view:
        view.on_node("Trainer")
        for step in range(1, 24 * 3600):
            now += 1.0
            view.training_progressed(CHIEF_TASK, Progress("train", step, 24 * 3600, 64.0, metrics={"loss": 0.5}))
        view.on_node("Transform")
        now += 90.0
        view.beam_progressed(3, 14)
        view.beam_progressed(4, 14)
    lines = capsys.readouterr().out.splitlines()
    assert 50 < len(lines) < 120, "of a day"
    assert lines[:2] == [
        "    step 1/86400  loss 0.5000  64 examples/s",
        "    step 6/86400  loss 0.5000  64 examples/s  24 h 00 min left",
    ]
    assert lines[-1] == "    Transform: stage 3 of 14, 90 s"


def test_lines_show_each_process(capsys):
    with console.RunView(console.Console()) as view:
        view.on_node("Trainer")
        for task in (CHIEF_TASK, WORKER):
            view.training_progressed(task, Progress("start"))
        view.training_progressed(WORKER, Progress("train", 3, 460))
        view.training_progressed(CHIEF_TASK, Progress("train", 4, 460))
    assert capsys.readouterr().out == "    step 4/460  chief: 4 worker 0: 3\n"


def test_live_line_has_a_bar_for_training_and_for_beam(monkeypatch):
    shown = console.Console(file=io.StringIO(), force_terminal=True, width=160, legacy_windows=False)
    with console.RunView(shown) as view:
        view.on_node("Transform")
        view.beam_progressed(7, 14)
        view._live.refresh()
        beam = shown.file.getvalue()
        view.on_node("Trainer")
        progress = Progress("train", 220, 440, metrics={"loss": 0.5}, epoch=10, epochs=20, learning_rate=0.002)
        view.training_progressed(CHIEF_TASK, progress)
        view._live.refresh()
        training = shown.file.getvalue()[len(beam) :]
    assert "stage 7 of 14" in beam
    assert "━" * 9 in beam
    assert "epoch 10/20  step 220/440  loss 0.5000  learning rate 0.002" in training
    assert "━" * 9 in training


def test_summary_of_a_pushed_model():
    cells = {"AUC": Cell(0.912345678), "ExampleCount": Cell(383.0)}
    evaluation = Evaluation((Slice("", cells),), {"AUC": ">= 0.8, change of at least -0.01"}, blessed=True)
    assert summarize(TRAINING, evaluation, PushedModel={"pushed": 1, "pushed_destination": "/serving/1"}) == [
        "trained       mirrored, 2 replicas, global batch 64, 440 steps",
        "AUC           0.912346  >= 0.8, change of at least -0.01 met",
        "ExampleCount  383",
        "model         /serving/1",
    ]


def test_summary_of_a_refused_model():
    failed = Cell(0.5, failed=True)
    overall = {"A": failed, "B": Cell(0.9), "C": failed, "D": Cell(0.72, 0.95, failed=True, unmet_change=-0.23), "E": failed}
    slices = (Slice("hour=1", {"B": failed, "C": failed}), *(Slice(f"hour={hour}", {"B": failed}) for hour in (2, 3, 4)))
    thresholds = {**dict.fromkeys("ABC", ">= 0.8"), "D": ">= 0.43, change of at least -0.2"}
    evaluation = Evaluation((Slice("", overall), *slices), thresholds, blessed=False)
    lines = summarize(TRAINING, evaluation, ModelBlessing={"blessed": 0})
    assert lines[1].endswith(">= 0.8 not met")
    assert lines[2].endswith("not met on 4 slices (hour=1, hour=2, hour=3, ...)")
    assert lines[3].endswith("not met, also on 1 slice (hour=1)")
    assert lines[4] == "D        0.72  >= 0.43, change of at least -0.2 not met: -0.23 from the blessed model's 0.95"
    assert lines[5] == "E        0.5   not met", "without a baseline, a threshold on change is not known"
    assert lines[6].endswith("not pushed: thresholds are not met; it is in /m")


NOISE = """
import os, sys
from pathlib import Path
from tfx_distribute.pipelines.cli.console import redirect_output
with redirect_output(Path(sys.argv[1])) as shown:
    print("python noise")
    os.write(2, b"c++ noise\\n")
    shown.print("for people")
print("afterwards")
"""


def test_warnings_of_this_package_are_shown_and_others_are_not(capsys):
    with console.RunView(console.Console()):
        logging.getLogger("tfx_distribute.components.trainer").warning("Starting from %s", "[scratch]")
        logging.getLogger("absl").warning("noise")
    logging.getLogger("tfx_distribute.components.trainer").warning("too late")
    assert capsys.readouterr().out == "    Starting from [scratch]\n"


def test_noise_goes_to_the_log(tmp_path):
    words = [sys.executable, "-c", NOISE, tmp_path / "log"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=True)
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["c++ noise", "python noise"]
    assert done.stdout == "for people\nafterwards\n"


NOTEBOOK = """
import io, logging, os, sys
from pathlib import Path
sys.stdout, sys.stderr = own, errors = io.StringIO(), io.StringIO()  # as a notebook has them
from absl import logging as absl_logging
absl_logging.use_absl_handler()
absl_logging.set_verbosity(absl_logging.INFO)
from tfx_distribute.pipelines.cli.console import redirect_output
with redirect_output(Path(sys.argv[1]), quiet=sys.argv[2] == "quiet") as shown:
    print("python noise")
    absl_logging.info("absl noise")
    logging.getLogger("late").addHandler(logging.StreamHandler(sys.stderr))
    os.write(2, b"c++ noise\\n")
    shown.print("for people")
print("afterwards")
absl_logging.info("absl afterwards")
logging.getLogger("late").error("late afterwards")
os.write(1, f"{own.getvalue()}|{errors.getvalue()}".encode())
"""


@pytest.mark.parametrize(("mode", "seen"), [("shown", "for people\nafterwards\n|"), ("quiet", "afterwards\n|")])
def test_noise_of_a_notebook_goes_to_the_log(tmp_path, mode, seen):
    log = tmp_path / "run.log"
    words = [sys.executable, "-c", NOTEBOOK, log, mode]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=True)
    assert done.stdout.startswith(seen)
    assert "absl afterwards" in done.stdout
    assert "late afterwards" in done.stdout
    assert "noise" not in done.stdout
    assert {line.rpartition("] ")[2] for line in log.read_text().splitlines()} >= {"c++ noise", "python noise", "absl noise"}


def test_a_run_goes_on_when_its_output_cannot_be_written(tmp_path):
    words = [sys.executable, "-c", NOISE.replace('print("afterwards")', 'os.write(2, b"afterwards")'), tmp_path / "log"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"afterwards")
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["c++ noise", "python noise"]


@pytest.mark.parametrize(
    ("tasks", "line"),
    [
        (
            {CHIEF_TASK: Progress("train", 30, 440, 1234.5, 1, 64, {"loss": 0.25, "accuracy": 0.5})},
            "step 30/440  loss 0.2500  1,234 examples/s",
        ),
        (
            {CHIEF_TASK: Progress("train", 30, 440, 1000.0), WORKER: Progress("train", 28, 440, 1500.0)},
            "step 30/440  2,500 examples/s  chief: 30 worker 0: 28",
        ),
        ({CHIEF_TASK: Progress("train", 30, 440), SERVER: Progress("serve")}, "step 30/440  chief: 30 ps 0: serves"),
        ({CHIEF_TASK: Progress("start"), WORKER: Progress("start")}, "starting chief, worker 0"),
        ({CHIEF_TASK: Progress("export", 440, 440)}, "writing the model"),
    ],
)
def test_lines_of_a_training(tasks, line):
    assert console.format_training_line(tasks) == line


def test_line_names_the_slowest_process():
    seconds = {
        CHIEF_TASK: {"compute": 5.0, "wait_for_peers": 5.0},
        WORKER: {"compute": 5.0, "input": 5.0},
    }
    tasks = {task: Progress("train", 9, 9, seconds=spent) for task, spent in seconds.items()}
    assert (
        console.format_training_line(tasks, left=125.0)
        == "step 9/9  2 min left  chief: 9 worker 0: 9  slowest: worker 0 (input)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (101, "2 min"), (7100, "118 min"), (11_100, "3 h 05 min")]
)
def test_durations(seconds, text):
    assert console.format_seconds(seconds) == text


def test_time_left_counts_from_the_first_step():
    left = console.TimeLeft()

    def add(now, step, phase="train", metrics=None):
        return left.add(now, Progress(phase, step, 100, metrics=metrics))

    assert add(0.0, 0) is None
    assert add(60.0, 1, metrics={"loss": 1.0}) is None, "the first step took a minute to trace"
    assert add(70.0, 11, metrics={"loss": 1.0}) == 89.0
    assert add(75.0, 11, "start") is None, "another try"
    assert add(90.0, 11, metrics={"loss": 1.0}) is None
    assert add(91.0, 21, metrics={"loss": 1.0}) == pytest.approx(7.9)

import logging
import math
import os
import subprocess
import sys

from tfx_distribute.components.tuner.trials import SearchResult, Trial
from tfx_distribute.pipelines.cli import console
from tfx_distribute.pipelines.runners.local.results import MetricResult, RunResult
from tfx_distribute.pipelines.spec.pipeline import Change, Metric
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.lifecycle.progress import Progress

TRAINING = {"strategy": "mirrored", "num_replicas": 2, "global_batch_size": 64, "train_steps": 440}


def test_line_of_one_process():
    progress = Progress("train", 30, 440, 1234.5, 1, 64, {"loss": 0.25, "accuracy": 0.5})
    assert console.format_training_line({CHIEF_TASK: progress}) == "step 30/440  loss 0.2500  1,234 examples/s"


def test_line_of_a_cluster_adds_up_examples_and_names_each_process():
    tasks = {CHIEF_TASK: Progress("train", 30, 440, 1000.0), ClusterTask("worker", 0): Progress("train", 28, 440, 1500.0)}
    assert console.format_training_line(tasks) == "step 30/440  2,500 examples/s  chief: 30 worker 0: 28"


def test_line_of_processes_that_take_no_steps():
    tasks = {
        CHIEF_TASK: Progress("train", 30, 440),
        ClusterTask("ps", 0): Progress("serve"),
        ClusterTask("evaluator", 0): Progress("evaluate", 2),
    }
    assert console.format_training_line(tasks) == "step 30/440  chief: 30 ps 0: serves evaluator: epoch 2"


def test_line_before_and_after():
    assert console.format_training_line({CHIEF_TASK: Progress("start"), ClusterTask("worker", 0): Progress("start")}) == (
        "starting chief, worker 0"
    )
    assert console.format_training_line({CHIEF_TASK: Progress("export", 440, 440)}) == "writing the model"


def test_summary_of_a_pushed_model():
    result = RunResult(
        training=TRAINING,
        model="/m",
        metrics=(
            MetricResult("AUC", 0.912345678, Metric(lower_bound=0.8, change=Change(absolute=-0.01)), ()),
            MetricResult("ExampleCount", 383.0, Metric(), ()),
        ),
        blessed=True,
        pushed="/serving/1",
    )
    assert [line.rstrip() for line in str(console.format_summary(result)).splitlines()] == [
        "trained       mirrored, 2 replicas, global batch 64, 440 steps",
        "AUC           0.912346  >= 0.8, change -0.01  met",
        "ExampleCount  383",
        "model         /serving/1",
    ]


def test_summary_of_a_refused_model():
    metric = Metric(lower_bound=0.8)
    result = RunResult(
        training=TRAINING,
        model="/m",
        metrics=(
            MetricResult("A", 0.5, metric, ("",)),
            MetricResult("B", 0.9, metric, ("hour=1", "hour=2", "hour=3", "hour=4")),
            MetricResult("C", 0.7, metric, ("", "hour=1")),
        ),
        blessed=False,
    )
    lines = str(console.format_summary(result)).splitlines()
    assert lines[1].endswith(">= 0.8  not met")
    assert lines[2].endswith("not met on 4 slices (hour=1, hour=2, hour=3, ...)")
    assert lines[3].endswith("not met, also on 1 slice (hour=1)")
    assert lines[4].endswith("not pushed: thresholds are not met; it is in /m")


def test_summary_of_metrics_that_are_not_finite():
    change = Metric(change=Change(absolute=0.1, higher_is_better=False))
    result = RunResult(
        training=TRAINING,
        model="/m",
        metrics=(
            MetricResult("A", math.nan, change, ("", "hour=1"), ("", "hour=1")),
            MetricResult("B", 0.5, change, ("hour=1", "hour=2"), ("hour=2",)),
            MetricResult("C", -9.53674e-12, Metric(upper_bound=100), ()),
        ),
        blessed=False,
        unusable_baseline="A, B on hour=3",
    )
    assert str(console.format_summary(result)).splitlines()[1:5] == [
        "A         nan           change +0.1  not met: the value is not finite",
        "B         0.5           change +0.1  not met on 2 slices (hour=1, hour=2); not finite on 1 of them",
        "C         -9.53674e-12  <= 100  met",
        "baseline  not compared with the latest blessed model: its A, B on hour=3 is not finite",
    ]


NOISE = """
import os, sys
from pathlib import Path
from tfx_distribute.pipelines.cli.console import redirect_output
with redirect_output(Path(sys.argv[1]), sys.argv[2] == "verbose") as shown:
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
    for mode, seen in (("quiet", "for people\nafterwards\n"), ("verbose", "python noise")):
        log = tmp_path / f"{mode}.log"
        done = subprocess.run(
            [sys.executable, "-c", NOISE, log, mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert sorted(log.read_text().splitlines()) == ["c++ noise", "python noise"]
        assert seen in done.stdout
        assert ("c++ noise" in done.stdout) == (mode == "verbose")


def test_a_run_goes_on_when_its_output_cannot_be_written(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for number, output in enumerate((writer, full)):
            log = tmp_path / f"{number}.log"
            code = NOISE.replace('print("afterwards")', 'os.write(2, b"afterwards")')
            done = subprocess.run(
                [sys.executable, "-c", code, log, "verbose"], stdout=output, stderr=subprocess.PIPE, timeout=60, check=False
            )
            assert (done.returncode, done.stderr) == (0, b"afterwards")
            assert sorted(log.read_text().splitlines()) == ["c++ noise", "python noise"]
    finally:
        os.close(writer)
        os.close(full)


def test_a_long_search_is_cut():
    found = [Trial(str(number), "COMPLETED", {"rate": 0.5}, score=number, step=9) for number in range(25)]
    lines = str(console.format_trials(SearchResult("val_loss", "min", found))).splitlines()
    assert lines[0].split() == ["trial", "val_loss", "steps", "rate"]
    assert lines[20].split() == ["19", "19", "9", "0.5"]
    assert lines[21:] == ["and 5 more"]
    assert len(str(console.format_trials(SearchResult("val_loss", "min", found[:20]))).splitlines()) == 21

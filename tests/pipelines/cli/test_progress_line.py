import pytest

from tfx_distribute.pipelines.cli.progress_line import (
    TimeLeft,
    format_seconds,
    format_training_line,
)
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.reporting.progress import Progress

WORKER, SERVER = ClusterTask("worker", 0), ClusterTask("ps", 0)


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
def test_lines(tasks, line):
    assert format_training_line(tasks) == line


def test_line_names_the_slowest_process():
    seconds = {
        CHIEF_TASK: {"compute": 5.0, "wait_for_peers": 5.0},
        ClusterTask("worker", 0): {"compute": 5.0, "input": 5.0},
    }
    tasks = {task: Progress("train", 9, 9, seconds=spent) for task, spent in seconds.items()}
    assert format_training_line(tasks, left=125.0) == "step 9/9  2 min left  chief: 9 worker 0: 9  slowest: worker 0 (input)"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (101, "2 min"), (7100, "118 min"), (11_100, "3 h 05 min")]
)
def test_durations(seconds, text):
    assert format_seconds(seconds) == text


def test_time_left_counts_from_the_first_step():
    left = TimeLeft()

    def add(now, step, phase="train", metrics=None):
        return left.add(now, Progress(phase, step, 100, metrics=metrics))

    assert add(0.0, 0) is None
    assert add(60.0, 1, metrics={"loss": 1.0}) is None, "the first step took a minute to trace"
    assert add(70.0, 11, metrics={"loss": 1.0}) == 89.0
    assert add(75.0, 11, "start") is None, "another try"
    assert add(90.0, 11, metrics={"loss": 1.0}) is None
    assert add(91.0, 21, metrics={"loss": 1.0}) == pytest.approx(7.9)

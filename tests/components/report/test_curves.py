"""Tests the curves of a training from its history."""

import math

from tfx_distribute.components.report import curves
from tfx_distribute.components.report.data import Curve
from tfx_distribute.trainer_module.reporting.progress import Progress


def record(task: str, phase: str, step: int, started: float = 0.0, **values: object) -> Progress:
    return Progress(phase, step, time=started + step, task=task, started=started, **values)


def test_curves_of_every_process_and_try():
    """The second try of the chief starts in the middle of the first one's epoch."""
    records = [
        record("chief-0", "train", 1, metrics={"loss": 0.9}, examples_per_second=10.0),
        record("worker-0", "train", 1, metrics={"loss": 0.8, "val_loss": 9.0}, examples_per_second=12.0),
        record("chief-0", "epoch", 2, epoch=1, metrics={"loss": 0.7, "val_loss": 0.75}),
        record("chief-0", "train", 3, started=100.0, examples_per_second=11.0),
        record("chief-0", "epoch", 4, started=100.0, metrics={"loss": 0.5, "val_loss": math.nan}),
    ]
    made = curves.from_history(records)
    assert made.metrics == (
        Curve("loss", "train", ((2, 0.7),)),
        Curve("loss", "train", ((4, 0.5),)),
        Curve("loss", "validation", ((2, 0.75),)),
    )
    assert made.throughput == (
        Curve("examples per second", "chief 0", ((1, 10.0),)),
        Curve("examples per second", "chief 0", ((3, 11.0),)),
        Curve("examples per second", "worker 0", ((1, 12.0),)),
    )
    assert made.restarts == (3,)


def test_throughput_of_a_short_training():
    """Each epoch takes less than the time between two reports of steps."""
    records = [
        record("chief-0", "train", 1, examples_per_second=19.0),
        record("chief-0", "epoch", 45, examples_per_second=600.0),
        record("chief-0", "train", 45, examples_per_second=2000.0),
        record("chief-0", "epoch", 90, examples_per_second=15000.0),
    ]
    (curve,) = curves.from_history(records).throughput
    assert curve.points == ((1, 19.0), (45, 600.0), (90, 15000.0))


def test_long_curves_keep_their_last_point():
    records = [record("chief-0", "train", step, metrics={"loss": 1.0 / (step + 1)}) for step in range(5001)]
    (curve,) = curves.from_history(records).metrics
    assert len(curve.points) <= curves.MAX_POINTS + 1
    assert curve.points[-1] == (5000, 1.0 / 5001)

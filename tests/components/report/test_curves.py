"""Tests the curves of a training, from its history and from TensorBoard's logs."""

import math

import tensorflow as tf

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
    assert made.unit == "step"
    assert made.metrics == (
        Curve("loss", "train", ((2, 0.7),)),
        Curve("loss", "train", ((4, 0.5),), attempt=1),
        Curve("loss", "validation", ((2, 0.75),)),
    )
    assert made.throughput == (
        Curve("examples per second", "chief 0", ((1, 10.0),)),
        Curve("examples per second", "chief 0", ((3, 11.0),), attempt=1),
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


def test_curves_from_the_logs_of_a_run_fn(tmp_path):
    """A try that continued has written some epochs again."""
    for folder, values in (("train", (0.9, 0.5)), ("validation", (0.8, 0.6))):
        writer = tf.summary.create_file_writer(str(tmp_path / folder))
        with writer.as_default():
            for epoch, value in enumerate(values):
                tf.summary.scalar("epoch_loss", value, step=epoch)
                tf.summary.scalar("evaluation_loss_vs_iterations", value, step=epoch)
        writer.close()
    writer = tf.summary.create_file_writer(str(tmp_path / "train"), filename_suffix=".again")
    with writer.as_default():
        tf.summary.scalar("epoch_loss", 0.4, step=1)
    writer.close()

    made = curves.from_scalars(curves.read_scalars(str(tmp_path)))
    assert made.unit == "epoch"
    rounded = {curve.series: [(epoch, round(value, 6)) for epoch, value in curve.points] for curve in made.metrics}
    assert rounded == {"train": [(1, 0.9), (2, 0.4)], "validation": [(1, 0.8), (2, 0.6)]}
    assert curves.from_scalars(curves.read_scalars(str(tmp_path / "none"))).metrics == ()

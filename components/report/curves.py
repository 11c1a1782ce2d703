"""Makes the curves of a training from its history; a run_fn leaves none."""

import math
from collections.abc import Iterable, Sequence

from tfx_distribute.components.report.data import Curve, Curves
from tfx_distribute.trainer_module.reporting.progress import Progress

MAX_POINTS = 400  # of a curve; a plot has no room for more
_VALIDATION = "val_"

# Metric, series and start of a try -> the points of its curve.
_Points = dict[tuple[str, str, float], list[tuple[float, float]]]


def from_history(records: Sequence[Progress]) -> Curves:
    """Makes curves of each process and try from records in order of time."""
    of_chief = [record for record in records if record.task == "chief-0"]
    phase = "epoch" if any(record.phase == "epoch" for record in of_chief) else "train"
    metrics: _Points = {}
    first_steps: dict[float, int] = {}
    for record in of_chief:
        if record.phase in ("train", "epoch"):
            first_steps.setdefault(record.started, record.step)
        if record.phase != phase:
            continue
        for metric, value in record.metrics.items():
            series = "validation" if metric.startswith(_VALIDATION) else "train"
            # Between epochs, that of a validation repeats the last one's.
            if math.isfinite(value) and (series, phase) != ("validation", "train"):
                key = (metric.removeprefix(_VALIDATION), series, record.started)
                metrics.setdefault(key, []).append((record.step, value))
    first_try = min((record.started for record in of_chief), default=0.0)
    restarts = tuple(step for started, step in sorted(first_steps.items()) if started > first_try)
    return Curves(_to_curves(metrics), _to_curves(_measure_throughput(records)), restarts)


def _measure_throughput(records: Iterable[Progress]) -> _Points:
    """Returns the speed of each process and try, over whole epochs and between them.

    Short trainings have no other report within an epoch than that of the first step,
    most of whose time went to tracing. An epoch's own report replaces another of the
    same step.
    """
    speeds: dict[tuple[str, str, float], dict[int, float]] = {}
    for record in records:
        if record.phase in ("train", "epoch") and 0 < record.examples_per_second < math.inf:
            key = ("examples per second", record.task.replace("-", " "), record.started)
            of_step = speeds.setdefault(key, {})
            if record.phase == "epoch" or record.step not in of_step:
                of_step[record.step] = record.examples_per_second
    return {key: list(of_step.items()) for key, of_step in speeds.items()}


def _to_curves(points: _Points) -> tuple[Curve, ...]:
    """Returns curves, the loss and the chief's first."""
    order = {"train": 0, "validation": 1, "chief 0": 2}
    keys = sorted(points, key=lambda key: (key[0] != "loss", order.get(key[1], 3), *key))
    return tuple(Curve(metric, series, _thin(points[metric, series, started])) for metric, series, started in keys)


def _thin(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Leaves out points evenly if there are too many, and keeps the last."""
    stride = math.ceil(len(points) / MAX_POINTS)
    return (*points[:-1:stride], points[-1])

"""Makes the curves of a training from its history, or from TensorBoard's logs.

Logs have the metrics of the chief at the end of each epoch. The history also has those
of the other processes and of earlier tries, and the throughput; a run_fn leaves none.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence

from tfx.dsl.io import fileio

from tfx_distribute.components.report.data import Curve, Curves
from tfx_distribute.trainer_module.reporting.progress import Progress

MAX_POINTS = 400  # of a curve; a plot has no room for more
_PREFIX = "epoch_"  # of the names that Keras's TensorBoard callback writes
_VALIDATION = "val_"

# A name, a step or epoch, and a value.
Scalar = tuple[str, int, float]


def from_history(records: Sequence[Progress]) -> Curves:
    """Makes curves of each process and try from the history of a training.

    The records are in order of time.

    Example:
      >>> record = Progress("epoch", 9, metrics={"loss": 1}, task="chief-0")
      >>> from_history([record]).metrics
      (Curve(metric='loss', series='train', points=((9, 1.0),), attempt=0),)
    """
    attempts = _number_attempts(records)
    metrics: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    has_epochs = any(record.task == "chief-0" and record.phase == "epoch" for record in records)
    for record in records:
        attempt = attempts[record.task, record.started]
        if record.phase == "epoch" and record.task == "chief-0":
            for metric, value in record.metrics.items():
                series = "validation" if metric.startswith(_VALIDATION) else "train"
                _append(metrics, (metric.removeprefix(_VALIDATION), series, attempt), record.step, value)
        elif record.phase == "train" and record.task == "chief-0" and not has_epochs:
            for metric, value in record.metrics.items():
                if not metric.startswith(_VALIDATION):  # repeats that of the last evaluation
                    _append(metrics, (metric, "train", attempt), record.step, value)
    throughput = _measure_throughput(records, attempts)
    return Curves("step", _to_curves(metrics), _to_curves(throughput), _find_restarts(records, attempts))


def from_scalars(scalars: Iterable[tuple[str, Iterable[Scalar]]]) -> Curves:
    """Makes curves from the scalars of TensorBoard's log folders, such as `train`."""
    metrics: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for series, values in scalars:
        for name, step, value in values:
            if name.startswith(_PREFIX):
                _append(metrics, (name.removeprefix(_PREFIX), series, 0), step + 1, value)
    return Curves("epoch", _to_curves(metrics))


def read_scalars(folder: str) -> list[tuple[str, list[Scalar]]]:
    """Reads the scalars of all log folders below the folder of a ModelRun.

    A later value of the same name and step replaces an earlier one, as of a try that
    continued before it.
    """
    # TensorBoard loads TensorFlow.
    from tensorboard.backend.event_processing import event_file_loader
    from tensorboard.util import tensor_util

    scalars = []
    for series in ("train", "validation"):
        values: dict[tuple[str, int], float] = {}
        for path in sorted(fileio.glob(os.path.join(folder, series, "events.out.tfevents.*"))):
            for event in event_file_loader.EventFileLoader(path).Load():
                for value in event.summary.value:
                    if value.HasField("tensor") and value.metadata.plugin_data.plugin_name == "scalars":
                        values[value.tag, event.step] = float(tensor_util.make_ndarray(value.tensor))
        scalars.append((series, [(name, step, value) for (name, step), value in sorted(values.items())]))
    return scalars


def _append(
    curves: dict[tuple[str, str, int], list[tuple[float, float]]], key: tuple[str, str, int], step: float, value: float
) -> None:
    if math.isfinite(value):
        curves.setdefault(key, []).append((step, value))


def _measure_throughput(
    records: Iterable[Progress], attempts: Mapping[tuple[str, float], int]
) -> dict[tuple[str, str, int], list[tuple[float, float]]]:
    """Returns the speed of each process and try, over whole epochs and between them.

    Short trainings have no other report within an epoch than that of the first step,
    most of whose time went to tracing. An epoch's own report replaces another of the
    same step.
    """
    speeds: dict[tuple[str, str, int], dict[int, float]] = {}
    for record in records:
        if record.phase in ("train", "epoch") and 0 < record.examples_per_second < math.inf:
            key = ("examples per second", record.task.replace("-", " "), attempts[record.task, record.started])
            of_step = speeds.setdefault(key, {})
            if record.phase == "epoch" or record.step not in of_step:
                of_step[record.step] = record.examples_per_second
    return {key: list(of_step.items()) for key, of_step in speeds.items()}


def _to_curves(points: dict[tuple[str, str, int], list[tuple[float, float]]]) -> tuple[Curve, ...]:
    """Returns curves, the loss and the chief's first."""
    order = {"train": 0, "validation": 1, "chief 0": 2}
    keys = sorted(points, key=lambda key: (key[0] != "loss", order.get(key[1], 3), *key))
    return tuple(Curve(metric, series, _thin(points[key]), attempt) for key in keys for metric, series, attempt in [key])


def _thin(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Leaves out points evenly, and keeps the last."""
    if len(points) <= MAX_POINTS:
        return tuple(points)
    stride = math.ceil(len(points) / MAX_POINTS)
    return (*points[:-1:stride], points[-1])


def _number_attempts(records: Iterable[Progress]) -> dict[tuple[str, float], int]:
    """Numbers the tries of each process in the order in which they started."""
    starts: dict[str, set[float]] = {}
    for record in records:
        starts.setdefault(record.task, set()).add(record.started)
    return {(task, start): number for task, times in starts.items() for number, start in enumerate(sorted(times))}


def _find_restarts(records: Iterable[Progress], attempts: dict[tuple[str, float], int]) -> tuple[float, ...]:
    """Returns the steps at which later tries of the chief continued."""
    first_steps: dict[int, int] = {}
    for record in records:
        if record.task == "chief-0" and record.phase in ("train", "epoch"):
            first_steps.setdefault(attempts[record.task, record.started], record.step)
    return tuple(step for attempt, step in sorted(first_steps.items()) if attempt > 0)

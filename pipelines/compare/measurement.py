"""Measures a training from its history. Plain arithmetic."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.job.time_use import ProcessTime, summarize
from tfx_distribute.trainer_module.lifecycle.history import HistoryRecord

# What a training step consists of. Other activities, such as tracing, are not part of
# its speed.
STEP_ACTIVITIES = ("input", "compute", "wait_for_peers")
# Speeds that differ by less than this part are never called different: it is what two
# measurements of the same training differ by on a machine with little else to do.
MIN_SPREAD = 0.05


@dataclass(frozen=True)
class LossPoint:
    """The mean loss of a window of training steps.

    Attributes:
      step: The last step of the window.
      seconds: Seconds of all training steps up to it, tracing not included.
      loss: The mean training loss.
    """

    step: int
    seconds: float
    loss: float


@dataclass(frozen=True)
class Measurement:
    """A measured training.

    Attributes:
      replicas: Replicas that trained in step.
      global_batch_size: Examples per training step.
      train_steps: Training steps that were taken, with those of the warm-up.
      warmup_steps: The first steps, which count for the loss and not for the speed.
      startup_seconds: From the launch to the first training step.
      warmup_seconds: From there to the end of the warm-up, tracing included.
      seconds: Time of the training steps after the warm-up.
      spread: By what part the speed varies from window to window, at least
        `MIN_SPREAD`: half of the range of the middle half of all windows.
      input_share: Part of a step in which it waits for examples, from 0 to 1; None if
        unknown.
      wait_share: Part of a step in which a process waits for the others; None if
        unknown, or if there are none.
      core_wait_share: Part of the time in which threads could have run and other
        threads had the cores, summed over threads, so that it can be more than 1; None
        if unknown.
      slowest: One line about the process that holds the others back; empty if none.
      losses: The loss of each window.
    """

    replicas: int
    global_batch_size: int
    train_steps: int
    warmup_steps: int
    startup_seconds: float
    warmup_seconds: float
    seconds: float
    spread: float
    input_share: float | None = None
    wait_share: float | None = None
    core_wait_share: float | None = None
    slowest: str = ""
    losses: tuple[LossPoint, ...] = ()

    @property
    def examples_per_second(self) -> float:
        """Speed over all processes, after the warm-up."""
        return (self.train_steps - self.warmup_steps) * self.global_batch_size / self.seconds

    @property
    def seconds_per_step(self) -> float:
        """Mean time of a training step, after the warm-up."""
        return self.seconds / (self.train_steps - self.warmup_steps)

    @property
    def total_seconds(self) -> float:
        """Time from the launch on, without other activities than training steps."""
        return self.startup_seconds + self.warmup_seconds + self.seconds

    @property
    def diverged(self) -> LossPoint | None:
        """The first of the last windows with a loss that is not finite, if any."""
        last = list(itertools.takewhile(lambda point: not math.isfinite(point.loss), reversed(self.losses)))
        return last[-1] if last else None

    @property
    def loss(self) -> float | None:
        """The smallest mean loss of a window; None without one, and if it diverged."""
        return (
            None if self.diverged else min((point.loss for point in self.losses if math.isfinite(point.loss)), default=None)
        )

    def reached(self, loss: float) -> LossPoint | None:
        """Returns the first window with at most this mean loss; None if none has.

        A training that diverges later has not reached it.
        """
        return None if self.diverged else next((point for point in self.losses if point.loss <= loss), None)


class TooShortError(ValueError):
    """A training was too short to be measured."""


def measure(records: Iterable[HistoryRecord], launched: float) -> Measurement:
    """Measures a training.

    The windows are its epochs. The first one is the warm-up.

    Args:
      records: Its history.
      launched: Unix time at which its processes were started.

    Raises:
      TooShortError: It has no window after the warm-up.
    """
    by_task: dict[str, list[HistoryRecord]] = {}
    for record in sorted(records, key=lambda record: record.time):
        by_task.setdefault(record.task, []).append(record)
    chief = by_task.get(CHIEF_TASK.file_name, [])
    first = next((record for record in chief if record.phase == "train"), None)
    windows = [record for record in chief if record.phase == "epoch"]
    if first is None or len(windows) < 2:
        raise TooShortError(f"it ended after {windows[-1].step if windows else 0} training steps, too few to measure")
    warmup, *measured = windows
    lengths = [
        (later.step - earlier.step, _step_seconds(earlier, later))
        for earlier, later in zip(windows[:-1], measured, strict=True)
        if later.step > earlier.step
    ]
    seconds = sum(length for _, length in lengths)
    if seconds <= 0:
        raise TooShortError("its steps took no measurable time; raise --train-steps")
    times = [_process_time(task, history, warmup.time) for task, history in by_task.items()]
    trained = [time for time in times if time.total > 0]
    return Measurement(
        replicas=chief[-1].num_replicas or windows[-1].num_replicas,
        global_batch_size=windows[-1].global_batch_size,
        train_steps=windows[-1].step,
        warmup_steps=warmup.step,
        startup_seconds=max(0.0, first.time - launched),
        warmup_seconds=max(0.0, warmup.time - first.time),
        seconds=seconds,
        spread=_spread([length / steps for steps, length in lengths]),
        input_share=_mean_share(trained, "input"),
        # One process alone has no peers, even if its strategy sums over processes.
        wait_share=_mean_share(trained, "wait_for_peers") if len(by_task) > 1 else None,
        core_wait_share=_mean_rate(trained, "cpu_wait_seconds"),
        slowest=summarize(trained).describe(),
        losses=_losses(first, windows),
    )


def _step_seconds(earlier: HistoryRecord, later: HistoryRecord) -> float:
    """Returns the time of the training steps between two records of a process."""
    parts = [later.seconds.get(name, 0.0) - earlier.seconds.get(name, 0.0) for name in STEP_ACTIVITIES]
    if any(name in later.seconds for name in STEP_ACTIVITIES):
        return max(0.0, sum(parts))
    return max(0.0, later.time - earlier.time)


def _process_time(task: str, history: Sequence[HistoryRecord], since: float) -> ProcessTime:
    """Returns how a process spent its time in training steps after the warm-up."""
    timed = [record for record in history if record.seconds]
    before = next((record for record in reversed(timed) if record.time <= since), None)
    if not timed or before is None or before is timed[-1]:
        return ProcessTime(task, {})
    last = timed[-1]
    return ProcessTime(
        task,
        {
            name: max(0.0, last.seconds[name] - before.seconds.get(name, 0.0))
            for name in STEP_ACTIVITIES
            if name in last.seconds
        },
        {name: max(0.0, value - before.counters.get(name, 0.0)) for name, value in last.counters.items()},
    )


def _mean_share(times: Sequence[ProcessTime], activity: str) -> float | None:
    shares = [time.share(activity) for time in times if activity in time.seconds]
    return sum(shares) / len(shares) if shares else None


def _mean_rate(times: Sequence[ProcessTime], counter: str) -> float | None:
    rates = [time.rate(counter) for time in times if counter in time.counters]
    return sum(rates) / len(rates) if rates else None


def _spread(step_seconds: Sequence[float]) -> float:
    if len(step_seconds) < 4:
        return MIN_SPREAD if len(step_seconds) < 2 else max(MIN_SPREAD, _range(step_seconds) / 2)
    low, middle, high = quantiles(step_seconds, n=4)
    return max(MIN_SPREAD, (high - low) / 2 / middle) if middle else MIN_SPREAD


def _range(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / max(values) if max(values) else 0.0


def _losses(first: HistoryRecord, windows: Sequence[HistoryRecord]) -> tuple[LossPoint, ...]:
    points, seconds, earlier = [], 0.0, first
    for window in windows:
        seconds += _step_seconds(earlier, window)
        earlier = window
        if "loss" in window.metrics:
            points.append(LossPoint(window.step, seconds, window.metrics["loss"]))
    return tuple(points)

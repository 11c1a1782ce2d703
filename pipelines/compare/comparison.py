"""Compares measured trainings: scaling, time to a loss, and cost. Plain arithmetic."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tfx_distribute.pipelines.compare import grid
from tfx_distribute.pipelines.compare.combinations import Combination, Scaling
from tfx_distribute.pipelines.compare.measurement import LossPoint, Measurement
from tfx_distribute.pipelines.spec.base import Scalar

Status = Literal["measured", "failed", "skipped", "not_run"]
MEASURED: Final = "measured"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
NOT_RUN: Final = "not_run"

# Parameters that make a training larger. Trainings that differ in these alone are one
# series, whose scaling efficiency is computed.
SCALE_PARAMETERS = ("num_workers", "accelerator_count", "num_parameter_servers", "mesh", "devices")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one combination.

    Attributes:
      values: Its values, by name of the parameter.
      status: `measured`, `failed`, `skipped` for one that cannot be trained, or
        `not_run` if the comparison was interrupted before.
      reason: Why it was not measured; empty if it was.
      strategy: Its strategy, with `auto` resolved; empty for one that was skipped.
      per_replica_batch_size: Its batch of one replica; 0 for one that was skipped.
      processes: Its training processes, those of parameter servers included.
      devices: Devices that train, over all processes; 0 if unknown.
      note: What is unfavourable about it, if anything.
      measurement: Its measurement; None if it was not measured.
      folder: Folder of its history, TensorBoard logs and processes' output.
    """

    values: Mapping[str, Scalar]
    status: Status
    reason: str = ""
    strategy: str = ""
    per_replica_batch_size: int = 0
    processes: int = 0
    devices: int = 0
    note: str = ""
    measurement: Measurement | None = None
    folder: str = ""

    @property
    def series(self) -> tuple[tuple[str, Scalar], ...]:
        """Returns what the trainings of one series share: everything but their size."""
        return tuple((name, value) for name, value in self.values.items() if name not in SCALE_PARAMETERS)


def make_outcome(combination: Combination, status: Status, reason: str = "", **fields: Any) -> Outcome:
    """Makes the outcome of a combination.

    Args:
      combination: The combination.
      status: As in `Outcome`.
      reason: Why it was not measured.
      **fields: Further attributes of the outcome.
    """
    parameters = combination.spec.trainer.parameters if combination.spec else None
    return Outcome(
        values=combination.values,
        status=status,
        reason=reason,
        strategy=parameters.distribution.strategy if parameters else "",
        per_replica_batch_size=parameters.per_replica_batch_size if parameters else 0,
        processes=combination.processes,
        devices=combination.devices,
        note=combination.note,
        **fields,
    )


def initial_outcomes(combinations: Sequence[Combination]) -> list[Outcome]:
    """Returns the outcomes before anything runs: `skipped` or `not_run`."""
    return [make_outcome(each, SKIPPED if each.problem else NOT_RUN, each.problem) for each in combinations]


@dataclass(frozen=True)
class Measured:
    """A measured combination among the others.

    Attributes:
      index: Its place among all combinations, from 0.
      outcome: The combination.
      measurement: Its measurement.
      base: The smallest one of its series, which may be itself.
      efficiency: Speed per device, as a part of that of `base`; None if the devices are
        unknown.
      to_loss: Where it reached the target loss; None if it did not.
    """

    index: int
    outcome: Outcome
    measurement: Measurement
    base: int
    efficiency: float | None
    to_loss: LossPoint | None

    @property
    def machine_hours_per_million_examples(self) -> float:
        """Hours of all machines together, counting one for each process."""
        return self.outcome.processes * 1e6 / self.measurement.examples_per_second / 3600

    @property
    def machine_hours_per_1000_steps(self) -> float:
        """Hours of all machines together, counting one for each process."""
        return self.outcome.processes * 1e3 * self.measurement.seconds_per_step / 3600

    @property
    def machine_hours_to_loss(self) -> float | None:
        """The same, up to the target loss; None if it was not reached."""
        return self.outcome.processes * self.to_loss.seconds / 3600 if self.to_loss else None


@dataclass(frozen=True)
class Comparison:
    """Compared trainings.

    Attributes:
      pipeline: Name of the pipeline.
      scaling: `weak` or `strong`.
      train_steps: Training steps that each was given.
      outcomes: All combinations.
      measured: Those that were measured, in the same order.
      target_loss: The loss whose time is compared; None if there is none that all
        reached, or too few were measured.
      target_given: True if the user gave it, False if it is the best one that all
        reached.
      cores: Processor cores of this machine that training may use.
      num_gpus: GPUs of this machine.
    """

    pipeline: str
    scaling: Scaling
    train_steps: int
    outcomes: tuple[Outcome, ...]
    measured: tuple[Measured, ...]
    target_loss: float | None
    target_given: bool
    cores: int
    num_gpus: int

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of the parameters that combinations differ in."""
        names = self.outcomes[0].values if self.outcomes else ()
        return tuple(name for name in names if len({repr(outcome.values[name]) for outcome in self.outcomes}) > 1)

    def label(self, outcome: Outcome) -> str:
        """Returns the values that others do not share, such as `num_workers=2`."""
        return grid.describe({name: outcome.values[name] for name in self.varied}) or self.pipeline

    def series(self) -> Iterator[list[Measured]]:
        """Yields the measured combinations of each series, from small to large."""
        by_series: dict[tuple[tuple[str, Scalar], ...], list[Measured]] = {}
        for each in self.measured:
            by_series.setdefault(each.outcome.series, []).append(each)
        for group in by_series.values():
            yield sorted(group, key=lambda each: (each.outcome.devices, each.outcome.processes))

    def best(self, cost: Callable[[Measured], float | None]) -> Measured | None:
        """Returns the measured combination with the lowest cost; None without any.

        Trainings that diverged are left out.
        """
        trained = [each for each in self.measured if not each.measurement.diverged]
        priced = [(value, each.index, each) for each in trained if (value := cost(each)) is not None]
        return min(priced)[2] if priced else None


def compare(
    pipeline: str,
    scaling: Scaling,
    train_steps: int,
    outcomes: Sequence[Outcome],
    cores: int,
    num_gpus: int = 0,
    target_loss: float | None = None,
) -> Comparison:
    """Compares the outcomes of all combinations.

    Args:
      pipeline: Name of the pipeline.
      scaling: How batches were chosen.
      train_steps: Training steps that each was given.
      outcomes: All combinations.
      cores: Processor cores of this machine.
      num_gpus: GPUs of this machine.
      target_loss: The loss whose time is compared; None for the best one that all of
        the measured trainings reached.
    """
    measurements = [(index, each, each.measurement) for index, each in enumerate(outcomes) if each.measurement]
    target = common_loss([measurement for _, _, measurement in measurements]) if target_loss is None else target_loss
    measured = []
    for index, outcome, measurement in measurements:
        smallest, base = min(
            ((other.devices, number), base)
            for number, other, base in _with_measurements(outcomes)
            if other.series == outcome.series
        )
        efficiency = None
        if outcome.devices and smallest[0]:
            efficiency = (measurement.examples_per_second / outcome.devices) / (base / smallest[0])
        to_loss = None if target is None else measurement.reached(target)
        measured.append(Measured(index, outcome, measurement, smallest[1], efficiency, to_loss))
    return Comparison(
        pipeline, scaling, train_steps, tuple(outcomes), tuple(measured), target, target_loss is not None, cores, num_gpus
    )


def _with_measurements(outcomes: Sequence[Outcome]) -> Iterator[tuple[int, Outcome, float]]:
    for index, outcome in enumerate(outcomes):
        if outcome.measurement:
            yield index, outcome, outcome.measurement.examples_per_second


def common_loss(measurements: Sequence[Measurement]) -> float | None:
    """Returns the best loss that all reached, but for those that diverged.

    None if one has no loss.
    """
    losses = [measurement.loss for measurement in measurements if not measurement.diverged]
    if not losses or any(loss is None for loss in losses):
        return None
    return max(loss for loss in losses if loss is not None)


def differs(left: Measured, right: Measured) -> bool:
    """Returns True if two speeds differ by more than both of them vary."""
    faster, slower = sorted((left, right), key=lambda each: -each.measurement.examples_per_second)
    ratio = slower.measurement.examples_per_second / faster.measurement.examples_per_second
    return ratio < 1 - math.hypot(left.measurement.spread, right.measurement.spread)

"""Compares the outcomes of combinations: trainings of growing size, and efficiency."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tfx_distribute.pipelines.compare.combinations import Combination
from tfx_distribute.pipelines.compare.measurement import Measurement

# Parameters that make a training larger.
SIZE_PARAMETERS = ("num_workers", "accelerator_count", "num_parameter_servers", "mesh")

Measured = tuple[Combination, Measurement]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one combination.

    A combination that cannot be trained is `skipped`; one is `not run` if the
    comparison ended before. `reason` says why it failed or was skipped.
    """

    combination: Combination
    status: Literal["measured", "failed", "skipped", "not run"]
    reason: str = ""
    measurement: Measurement | None = None


def initial_outcome(combination: Combination) -> Outcome:
    """Returns the outcome of a combination before anything runs."""
    return Outcome(combination, "skipped" if combination.problem else "not run", combination.problem)


def find_measured(outcomes: Iterable[Outcome]) -> list[Measured]:
    """Returns the combinations that were measured, with their measurements."""
    return [(each.combination, each.measurement) for each in outcomes if each.measurement]


def find_series(outcomes: Iterable[Outcome]) -> list[list[Measured]]:
    """Groups measured trainings that differ in their size alone, from small to large.

    Those with an unknown number of devices are left out.
    """
    groups: dict[str, list[Measured]] = {}
    for combination, measurement in find_measured(outcomes):
        if combination.devices:
            others = {name: value for name, value in combination.values.items() if name not in SIZE_PARAMETERS}
            groups.setdefault(repr(others), []).append((combination, measurement))
    return [sorted(group, key=lambda each: each[0].devices) for group in groups.values()]


def efficiency(larger: Measured, smaller: Measured) -> float:
    """Returns the speed per device, as a part of that of a smaller training."""
    (combination, measurement), (base, base_measurement) = larger, smaller
    return measurement.examples_per_second / base_measurement.examples_per_second * base.devices / combination.devices

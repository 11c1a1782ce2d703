"""Holds the outcomes of combinations, and compares their speeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tfx_distribute.pipelines.compare.combinations import Combination
from tfx_distribute.pipelines.compare.measurement import Measurement

# Parameters that make a training larger.
SIZE_PARAMETERS = ("num_workers", "accelerator_count", "num_parameter_servers", "mesh")


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

    @property
    def speed(self) -> float:
        """Examples per second and device; 0 if unknown."""
        devices = self.combination.devices
        return self.measurement.examples_per_second / devices if self.measurement and devices else 0.0


def efficiencies(outcomes: Sequence[Outcome]) -> list[float | None]:
    """Returns the speed per device of each, as a part of that of its smallest peer.

    Peers are trainings that differ in their size alone.
    """
    bases: dict[str, float] = {}
    for each in sorted(outcomes, key=lambda each: each.combination.devices):
        if each.speed:
            bases.setdefault(_series(each), each.speed)
    return [each.speed / bases[_series(each)] if each.speed else None for each in outcomes]


def _series(outcome: Outcome) -> str:
    """Names the values that the trainings of different sizes share."""
    return repr({name: value for name, value in outcome.combination.values.items() if name not in SIZE_PARAMETERS})

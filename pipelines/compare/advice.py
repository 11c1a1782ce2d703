"""Says in plain words what a comparison shows, and what to change."""

import math
from collections.abc import Iterator, Sequence

from tfx_distribute.pipelines.compare.combinations import Combination
from tfx_distribute.pipelines.compare.measurement import Measurement

Measured = tuple[Combination, Measurement]

# Parts of a step from which waiting for peers and waiting for examples are named.
PEER_BOUND = 0.3
INPUT_BOUND = 0.2
# Two trainings of the same combination differ by so much on a quiet machine.
SAME_SPEED = 0.05
# Seconds of training steps, after the warm-up, that a speed should rest on, and those
# that longer trainings should have.
MIN_SECONDS = 2.0
ENOUGH_SECONDS = 5.0


def advise(combinations: Sequence[Combination], train_steps: int) -> list[str]:
    """Returns sentences about a comparison, those about its limits first."""
    measured = [(each, each.measurement) for each in combinations if each.measurement]
    if not measured:
        return []
    return [*_limits(measured, train_steps), *_waits(measured), *_fastest(measured)]


def _limits(measured: Sequence[Measured], train_steps: int) -> Iterator[str]:
    """Says how far the measurements can be trusted."""
    combination, measurement = min(measured, key=lambda each: each[1].seconds)
    if measurement.seconds < MIN_SECONDS:
        steps = float(f"{train_steps * ENOUGH_SECONDS / measurement.seconds:.0e}")
        yield (
            f"the steps of {combination.label} were measured for {measurement.seconds:.2g} s only; for speeds to rely on, "
            f"write --train-steps {steps:.0f}"
        )
    if any(combination.processes > 1 for combination, _ in measured):
        yield (
            "all processes ran on this machine, with its cores and without a network: this does not show how the training "
            "scales over machines"
        )


def _waits(measured: Sequence[Measured]) -> Iterator[str]:
    """Names the trainings that wait most for other processes, and for examples."""
    combination, measurement = max(measured, key=lambda each: each[1].wait_share or 0.0)
    if (measurement.wait_share or 0.0) >= PEER_BOUND:
        slowest = f"; {measurement.slowest}" if measurement.slowest else ""
        yield (
            f"{combination.label} waits for peers in {measurement.wait_share:.0%} of a step: try a larger "
            f"per_replica_batch_size{slowest}"
        )
    combination, measurement = max(measured, key=lambda each: each[1].input_share or 0.0)
    if (measurement.input_share or 0.0) >= INPUT_BOUND:
        yield (
            f"{combination.label} waits for examples in {measurement.input_share:.0%} of a step: more devices do not help "
            "there; try a larger per_replica_batch_size, or look at augment and decode_features of the module, "
            "cache and the storage of the examples"
        )


def _fastest(measured: Sequence[Measured]) -> Iterator[str]:
    """Names the fastest training, of those that did not diverge."""
    finite = [each for each in measured if math.isfinite(each[1].loss or 0.0)]
    if len(measured) < 2 or not finite:
        return
    (combination, fastest), *others = sorted(finite, key=lambda each: -each[1].examples_per_second)
    least = fastest.examples_per_second * (1 - SAME_SPEED)
    same = [other.label for other, measurement in others if measurement.examples_per_second >= least]
    also = f"; as fast within {SAME_SPEED:.0%}: {', '.join(same)}" if same else ""
    yield f"fastest: {combination.label}, {fastest.examples_per_second:,.0f} examples/s{also}"

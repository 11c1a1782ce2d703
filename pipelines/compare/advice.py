"""Says in plain words what a comparison shows, and what to change."""

import math
from collections.abc import Iterator, Sequence

from tfx_distribute.pipelines.compare.comparison import Measured, Outcome, efficiency, find_measured, find_series

# Adding devices pays if each added one gives at least this part of the speed of one in
# the smaller training.
PAYS = 0.5
# Parts of a step from which waiting for peers and waiting for examples are named.
PEER_BOUND = 0.3
INPUT_BOUND = 0.2
# Two trainings of the same combination differ by so much on a quiet machine.
SAME_SPEED = 0.05
# Seconds of training steps, after the warm-up, that a speed should rest on, and those
# that longer trainings should have.
MIN_SECONDS = 2.0
ENOUGH_SECONDS = 5.0


def advise(outcomes: Sequence[Outcome], train_steps: int) -> list[str]:
    """Returns sentences about a comparison, those about its limits first.

    Args:
      outcomes: All combinations.
      train_steps: Training steps that each was given.
    """
    measured = find_measured(outcomes)
    if not measured:
        return []
    return [*_limits(measured, train_steps), *_scaling(outcomes), *_input_bound(measured), *_fastest(measured)]


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


def _scaling(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Says how many devices still pay, and why more do not."""
    for series in find_series(outcomes):
        smaller = series[0]
        for larger in series[1:]:
            gain = larger[1].examples_per_second / smaller[1].examples_per_second
            growth = larger[0].devices / smaller[0].devices
            if growth > 1 and gain - 1 < PAYS * (growth - 1):
                yield (
                    f"{larger[0].label} does not pay: {gain:.2f} times the speed of {smaller[0].label} with {growth:.3g} "
                    f"times the devices{''.join(f'; {reason}' for reason in _reasons(larger))}"
                )
                break
            if growth > 1:
                smaller = larger
        if smaller is not series[0]:
            yield (
                f"{smaller[0].label} still pays: {efficiency(smaller, series[0]):.2f} of the speed per device of "
                f"{series[0][0].label}"
            )


def _reasons(measured: Measured) -> Iterator[str]:
    """Says why a training is not faster."""
    combination, measurement = measured
    if combination.processes > 1:
        yield f"its {combination.processes} processes share this machine's cores"
    if measurement.slowest:
        yield measurement.slowest
    if (measurement.wait_share or 0.0) >= PEER_BOUND:
        yield f"{measurement.wait_share:.0%} of a step waits for peers, so try a larger per_replica_batch_size"
    if (measurement.input_share or 0.0) >= INPUT_BOUND:
        yield f"{measurement.input_share:.0%} of a step waits for examples"


def _input_bound(measured: Sequence[Measured]) -> Iterator[str]:
    """Names the training that waits most for examples."""
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

"""Says in plain words what a comparison shows, and what to change.

Each sentence follows from measured values and the thresholds below. Speeds that differ
by less than they vary are called equal.
"""

import itertools
from collections.abc import Iterator, Sequence

from tfx_distribute.pipelines.compare import comparison as comparison_lib
from tfx_distribute.pipelines.compare import grid
from tfx_distribute.pipelines.compare.comparison import SCALE_PARAMETERS, Comparison, Measured

# Adding devices pays if each added one gives at least this part of the speed of one in
# the smaller training.
PAYS = 0.5
# Parts of a step from which waiting for peers and waiting for examples are named.
WAITS = 0.3
INPUT_BOUND = 0.2
# Seconds of a step below which the input of each batch costs more than its examples.
SHORT_STEP = 0.005
# Seconds in which threads of a process wait for a core, of each second, from which that
# is named.
BUSY_CORES = 0.1
# A larger batch is worth its effect on the loss if it is faster by this factor.
BATCH_GAIN = 1.1
# Seconds of training steps, after the warm-up, that a speed should rest on.
MIN_SECONDS = 2.0
# A longer comparison that is recommended aims at this many.
ENOUGH_SECONDS = 5.0


def advise(comparison: Comparison) -> tuple[str, ...]:
    """Returns sentences about a comparison, those about its limits first.

    Args:
      comparison: The comparison.
    """
    if not comparison.measured:
        return ()
    parts = (_limits, _notes, _scaling, _strategies, _batches, _input_bound, _choices)
    return tuple(dict.fromkeys(sentence for part in parts for sentence in part(comparison)))


def _limits(comparison: Comparison) -> Iterator[str]:
    """Says how far the measurements can be trusted."""
    shortest = min(comparison.measured, key=lambda each: each.measurement.seconds)
    seconds = shortest.measurement.seconds
    if seconds < MIN_SECONDS:
        steps = comparison.train_steps * ENOUGH_SECONDS / seconds
        rounded = 10 ** (len(str(int(steps))) - 1)
        yield (
            f"the steps of {comparison.label(shortest.outcome)} were measured for {seconds:.2g} s only; for speeds to rely "
            f"on, write --train-steps {(int(steps) // rounded + 1) * rounded}"
        )
    most = max(each.outcome.processes for each in comparison.measured)
    if most > 1 and not comparison.num_gpus:
        yield (
            f"all processes ran on this machine, up to {most} of them on {_count(comparison.cores, 'core')}, all of which "
            "one process can use by itself: this does not show how the training scales over machines"
        )
    elif most > 1:
        yield (
            "all processes ran on this machine and reached each other without a network: on several machines, they wait "
            "longer for each other"
        )


def _notes(comparison: Comparison) -> Iterator[str]:
    for each in comparison.measured:
        if each.outcome.note:
            yield f"{comparison.label(each.outcome)}: {each.outcome.note}"
        if each.measurement.diverged:
            yield (
                f"{comparison.label(each.outcome)} diverged: its loss is {each.measurement.diverged.loss:g} by step "
                f"{each.measurement.diverged.step}, so it is not recommended"
            )


def _scaling(comparison: Comparison) -> Iterator[str]:
    """Says how many devices still pay, and why more do not."""
    for series in comparison.series():
        pays: Measured | None = None
        for smaller, larger in itertools.pairwise(each for each in series if not each.measurement.diverged):
            if not smaller.outcome.devices or larger.outcome.devices <= smaller.outcome.devices:
                continue
            gain = larger.measurement.examples_per_second / smaller.measurement.examples_per_second
            growth = larger.outcome.devices / smaller.outcome.devices
            if comparison_lib.differs(smaller, larger) and (gain - 1) / (growth - 1) >= PAYS:
                pays = larger
                continue
            yield _why_not(comparison, smaller, larger, gain, growth)
            break
        if pays:
            yield (
                f"{comparison.label(pays.outcome)} still pays: {pays.efficiency or 0:.2f} of the speed per device of "
                f"{comparison.label(comparison.outcomes[pays.base])}"
            )


def _why_not(comparison: Comparison, smaller: Measured, larger: Measured, gain: float, growth: float) -> str:
    labels = comparison.label(larger.outcome), comparison.label(smaller.outcome)
    if not comparison_lib.differs(smaller, larger):
        lead = f"{labels[0]} is as fast as {labels[1]}, within what speeds vary"
    elif gain < 1:
        lead = f"{labels[0]} reaches {gain:.2f} of the speed of {labels[1]}"
    else:
        lead = f"{labels[0]} is {gain:.2f} times as fast as {labels[1]}, with {growth:.3g} times the devices"
    reasons = "; ".join(_reasons(comparison, larger))
    return f"{lead}: {reasons}" if reasons else f"{lead}; the measured times do not say why"


def _reasons(comparison: Comparison, measured: Measured) -> Iterator[str]:
    measurement = measured.measurement
    if measured.outcome.processes > 1 and not comparison.num_gpus:
        waits = measurement.core_wait_share
        known = "" if waits is None or waits < BUSY_CORES else ", and their threads wait for one"
        yield f"{measured.outcome.processes} processes share {_count(comparison.cores, 'core')}{known}"
    if measurement.slowest:
        yield measurement.slowest
    if measurement.wait_share is not None and measurement.wait_share >= WAITS:
        batch = "a larger per_replica_batch_size"
        if comparison.scaling == "strong":
            batch += f" (of a replica it is only {measured.outcome.per_replica_batch_size} here)"
        yield f"{_percent(measurement.wait_share)} of a step waits for peers; write {batch}"
    if measurement.input_share is not None and measurement.input_share >= INPUT_BOUND:
        yield f"{_percent(measurement.input_share)} of a step waits for examples"


def _strategies(comparison: Comparison) -> Iterator[str]:
    """Says how much slower a strategy is than another one on as many devices."""
    fastest: dict[tuple[int, str], Measured] = {}
    for each in sorted(comparison.measured, key=lambda each: -each.measurement.examples_per_second):
        same = {name: value for name, value in each.outcome.values.items() if name not in ("strategy", *SCALE_PARAMETERS)}
        first = fastest.setdefault((each.outcome.devices, grid.describe(same)), each)
        if each.outcome.strategy != first.outcome.strategy and comparison_lib.differs(first, each):
            ratio = each.measurement.examples_per_second / first.measurement.examples_per_second
            yield (
                f"{each.outcome.strategy} reaches {ratio:.2f} of the speed of {first.outcome.strategy} on "
                f"{_count(each.outcome.devices, 'device')}"
            )


def _batches(comparison: Comparison) -> Iterator[str]:
    """Says which batch is worth it, of trainings that are otherwise the same."""
    name = "per_replica_batch_size"
    if name not in comparison.varied:
        return
    by_rest: dict[str, list[Measured]] = {}
    for each in comparison.measured:
        rest = {other: value for other, value in each.outcome.values.items() if other != name}
        by_rest.setdefault(grid.describe(rest), []).append(each)
    for group in by_rest.values():
        ordered = sorted(group, key=lambda each: each.measurement.global_batch_size)
        for smaller, larger in itertools.pairwise(ordered):
            gain = larger.measurement.examples_per_second / smaller.measurement.examples_per_second
            if gain < BATCH_GAIN or not comparison_lib.differs(smaller, larger):
                continue
            sentence = (
                f"{comparison.label(larger.outcome)} trains {gain:.2f} times the examples per second of "
                f"{comparison.label(smaller.outcome)}"
            )
            if smaller.to_loss and larger.to_loss:
                before, after = smaller.to_loss.seconds, larger.to_loss.seconds
                when = "sooner" if after < before else "not sooner"
                sentence += f", and reaches the loss {when} ({after:.3g} s instead of {before:.3g} s)"
            yield sentence


def _input_bound(comparison: Comparison) -> Iterator[str]:
    """Names the trainings that wait for examples."""
    bound = [each for each in comparison.measured if (each.measurement.input_share or 0.0) >= INPUT_BOUND]
    if bound:
        worst = max(bound, key=lambda each: each.measurement.input_share or 0.0)
        others = f" ({_count(len(bound) - 1, 'other')} for a smaller part)" if len(bound) > 1 else ""
        remedy = (
            "look at augment and decode_features of the module, num_parallel_calls, cache and the storage of the examples"
        )
        if worst.measurement.seconds_per_step < SHORT_STEP:
            milliseconds = 1000 * worst.measurement.seconds_per_step
            remedy = f"a step takes only {milliseconds:.2g} ms, so try a larger per_replica_batch_size, or {remedy}"
        yield (
            f"{comparison.label(worst.outcome)} waits for examples in {_percent(worst.measurement.input_share or 0.0)} of a "
            f"step{others}: a faster model or more devices do not help there; {remedy}"
        )


def _choices(comparison: Comparison) -> Iterator[str]:
    """Names the fastest, the first to reach the loss, and the cheapest."""
    if len(comparison.measured) < 2:
        return
    fastest = comparison.best(lambda each: 1 / each.measurement.examples_per_second)
    if fastest:
        others = [each for each in comparison.measured if each is not fastest and not each.measurement.diverged]
        equal = [each for each in others if not comparison_lib.differs(fastest, each)]
        also = f"; as fast, within what speeds vary: {_labels(comparison, equal)}" if equal else ""
        speed = f"{fastest.measurement.examples_per_second:,.0f} examples/s"
        yield f"fastest: {comparison.label(fastest.outcome)}, {speed}{also}"
    cheapest = comparison.best(lambda each: each.machine_hours_per_million_examples)
    if cheapest:
        yield (
            f"cheapest, if each process has a machine of its own: {comparison.label(cheapest.outcome)}, "
            f"{cheapest.machine_hours_per_million_examples:.3g} machine hours for a million examples"
        )
    soonest = comparison.best(lambda each: each.to_loss.seconds if each.to_loss else None)
    if soonest and soonest.to_loss and comparison.target_loss is not None:
        yield (
            f"first at a loss of {comparison.target_loss:.4g}: {comparison.label(soonest.outcome)}, after "
            f"{soonest.to_loss.seconds:.3g} s and {soonest.to_loss.step} steps"
        )
    if comparison.target_given:
        missed = [each for each in comparison.measured if not each.to_loss]
        if missed:
            yield f"not at a loss of {comparison.target_loss:.4g} within the steps: {_labels(comparison, missed)}"


def _labels(comparison: Comparison, measured: Sequence[Measured]) -> str:
    return ", ".join(comparison.label(each.outcome) for each in measured)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

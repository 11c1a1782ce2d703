"""Formats a comparison as a table and as a JSON document, and gives advice."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from tfx_distribute.pipelines.cli import tables
from tfx_distribute.pipelines.compare import Combination, Measurement, efficiencies, format_value

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


def as_text(combinations: Sequence[Combination], train_steps: int) -> str:
    """Formats a comparison as a table and sentences of advice."""
    columns = ["batch", "examples/s", "efficiency", "input", "peers", "loss"]
    rows = [[*combinations[0].values, *columns]]
    for each, ratio in zip(combinations, efficiencies(combinations), strict=True):
        cells = [each.status, *[""] * (len(columns) - 1)]
        if measured := each.measurement:
            cells = [
                str(measured.batch),
                f"{measured.examples_per_second:,.0f}",
                _format(ratio, ".2f"),
                _format(measured.input_share, ".0%"),
                _format(measured.wait_share, ".0%"),
                _format(measured.loss, ".4g"),
            ]
        rows.append([*map(format_value, each.values.values()), *cells])
    reasons = [f"{each.status}: {each.label}: {each.reason}" for each in combinations if each.reason]
    advice = [f"* {sentence}" for sentence in advise(combinations, train_steps)]
    return "\n\n".join(part for part in (tables.format_table(rows), "\n".join(reasons), "\n".join(advice)) if part)


def as_document(pipeline: str, combinations: Sequence[Combination], train_steps: int) -> dict[str, Any]:
    """Returns a comparison as a JSON document, whose keys docs/scaling.md describes."""
    unknown = dict.fromkeys(field.name for field in fields(Measurement))
    documents = [
        {
            "parameters": dict(each.values),
            "status": each.status,
            "reason": each.reason,
            "processes": each.processes,
            "devices": each.devices,
            "efficiency": ratio,
            **(vars(each.measurement) if each.measurement else unknown),
        }
        for each, ratio in zip(combinations, efficiencies(combinations), strict=True)
    ]
    return {
        "pipeline": pipeline,
        "train_steps": train_steps,
        "combinations": documents,
        "advice": advise(combinations, train_steps),
    }


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


def _format(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)

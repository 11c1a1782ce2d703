"""Formats a comparison as a table, and as a JSON document."""

import math
from collections.abc import Sequence
from typing import Any

from tfx_distribute.pipelines.compare import grid
from tfx_distribute.pipelines.compare.advice import advise
from tfx_distribute.pipelines.compare.comparison import NOT_RUN, Comparison, Measured, Outcome
from tfx_distribute.pipelines.compare.measurement import Measurement

FORMAT = 1  # of the JSON document; grows when a key is removed or changes its meaning
_UNKNOWN = "-"


def as_text(comparison: Comparison) -> str:
    """Formats a comparison as a table and sentences of advice.

    ```text
    num_workers  batch  examples/s  efficiency  input  peers  ...
    1               32       5,742        1.00    12 %    0 %
    2               64       6,121        0.53    10 %   41 %
    ```

    Args:
      comparison: The comparison.
    """
    by_index = {each.index: each for each in comparison.measured}
    header = [*comparison.varied, *_columns(comparison)]
    rows = [header]
    remarks = []
    for index, outcome in enumerate(comparison.outcomes):
        values = [grid.format_value(outcome.values[name]) for name in comparison.varied]
        measured = by_index.get(index)
        rows.append([*values, *(_cells(comparison, measured) if measured else [_status(outcome)])])
        if outcome.reason and outcome.status != NOT_RUN:
            remarks.append(f"{outcome.status}: {comparison.label(outcome)}: {outcome.reason}")
    advice = [f"* {sentence}" for sentence in advise(comparison)]
    return "\n".join(
        [*_align(rows, len(comparison.varied)), *(["", *remarks] if remarks else []), *(["", *advice] if advice else [])]
    )


def _columns(comparison: Comparison) -> list[str]:
    target = "to the loss" if comparison.target_loss is None else f"to loss {comparison.target_loss:.4g}"
    return ["batch", "examples/s", "efficiency", "input", "peers", "loss", target, "machine h/M", "warm-up"]


def _cells(comparison: Comparison, measured: Measured) -> list[str]:
    measurement = measured.measurement
    return [
        str(measurement.global_batch_size),
        f"{measurement.examples_per_second:,.0f}",
        _UNKNOWN if measured.efficiency is None else f"{measured.efficiency:.2f}",
        _share(measurement.input_share),
        _share(measurement.wait_share),
        _loss(measurement),
        f"{measured.to_loss.seconds:.2f} s" if measured.to_loss else _UNKNOWN,
        f"{measured.machine_hours_per_million_examples:.3g}",
        f"{measurement.startup_seconds + measurement.warmup_seconds:.1f} s",
    ]


def _loss(measurement: Measurement) -> str:
    if measurement.diverged:
        return f"{measurement.diverged.loss:g}"
    return _UNKNOWN if measurement.loss is None else f"{measurement.loss:.4g}"


def _share(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{100 * share:.0f} %"


def _status(outcome: Outcome) -> str:
    return outcome.status.replace("_", " ")


def _align(rows: Sequence[Sequence[str]], names: int) -> list[str]:
    """Aligns the cells of a table: those of the first columns left, others right."""
    whole = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[column]) for row in (rows if column < names else whole)) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < names or len(row) < len(rows[0]) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def as_document(comparison: Comparison) -> dict[str, Any]:
    """Returns a comparison as a JSON document, whose keys docs/scaling.md describes.

    Numbers that are unknown, infinite or NaN are null.

    Args:
      comparison: The comparison.
    """
    by_index = {each.index: each for each in comparison.measured}
    return {
        "format": FORMAT,
        "pipeline": comparison.pipeline,
        "scaling": comparison.scaling,
        "train_steps": comparison.train_steps,
        "target_loss": _finite(comparison.target_loss),
        "target_loss_given": comparison.target_given,
        "machine": {"cores": comparison.cores, "gpus": comparison.num_gpus},
        "combinations": [
            {**_describe_outcome(outcome), **_describe_measured(by_index.get(index))}
            for index, outcome in enumerate(comparison.outcomes)
        ],
        "advice": list(advise(comparison)),
    }


def _describe_outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "parameters": {name: _finite(value) for name, value in outcome.values.items()},
        "status": outcome.status,
        "reason": outcome.reason,
        "strategy": outcome.strategy,
        "processes": outcome.processes,
        "devices": outcome.devices,
        "per_replica_batch_size": outcome.per_replica_batch_size,
        "folder": outcome.folder,
    }


def _describe_measured(measured: Measured | None) -> dict[str, Any]:
    if measured is None:
        return dict.fromkeys(_MEASURED_KEYS)
    measurement, to_loss = measured.measurement, measured.to_loss
    values = (
        measurement.replicas,
        measurement.global_batch_size,
        measurement.train_steps,
        measurement.warmup_steps,
        measurement.startup_seconds,
        measurement.warmup_seconds,
        measurement.seconds,
        measurement.examples_per_second,
        measurement.seconds_per_step,
        measurement.spread,
        measured.efficiency,
        measured.base,
        measurement.input_share,
        measurement.wait_share,
        measurement.core_wait_share,
        measurement.slowest,
        measurement.loss,
        measurement.diverged and measurement.diverged.step,
        to_loss and to_loss.step,
        to_loss and to_loss.seconds,
        measured.machine_hours_per_million_examples,
        measured.machine_hours_per_1000_steps,
        measured.machine_hours_to_loss,
    )
    return dict(zip(_MEASURED_KEYS, map(_finite, values), strict=True))


_MEASURED_KEYS = (
    "replicas",
    "global_batch_size",
    "train_steps",
    "warmup_steps",
    "startup_seconds",
    "warmup_seconds",
    "measured_seconds",
    "examples_per_second",
    "seconds_per_step",
    "spread",
    "scaling_efficiency",
    "scaling_base",
    "input_share",
    "wait_share",
    "core_wait_share",
    "slowest",
    "loss",
    "diverged_at_step",
    "steps_to_loss",
    "seconds_to_loss",
    "machine_hours_per_million_examples",
    "machine_hours_per_1000_steps",
    "machine_hours_to_loss",
)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value

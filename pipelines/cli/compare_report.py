"""Formats a comparison as a table, and as a JSON document."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from tfx_distribute.pipelines.cli import tables
from tfx_distribute.pipelines.compare.advice import advise
from tfx_distribute.pipelines.compare.combinations import Combination, efficiencies, format_value
from tfx_distribute.pipelines.compare.measurement import Measurement


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


def _format(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)

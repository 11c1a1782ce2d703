"""Compares runs on this machine: parameters and metrics that differ."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tfx_distribute.pipelines.targets.local.runs import Run

Differences = dict[str, tuple[Any, ...]]  # by name, a value for each run


def compare(runs: Sequence[Run], metrics: Sequence[Mapping[str, float]]) -> dict[str, Differences]:
    """Returns the parameters, hyperparameters too, and the metrics that differ."""
    parameters = [
        {
            **run.parameters,
            **{f"hparams.{name}": value for name, value in run.hparams.items()},
            "module": run.module or None,
            "spans": run.spans or None,
        }
        for run in runs
    ]
    return {"parameter": find_differences(parameters), "metric": find_differences(metrics)}


def find_differences(values: Sequence[Mapping[str, Any]]) -> Differences:
    """Returns the names whose values differ; None where a mapping has none."""
    rows = {name: tuple(each.get(name) for each in values) for name in dict.fromkeys(itertools.chain(*values))}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row)}

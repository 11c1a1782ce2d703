"""Reads what a report shows from the artifacts of a run.

A part that cannot be read is left out, and the report says why.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from absl import logging
from tfx.dsl.io import fileio

from tfx_distribute.components.report import curves, evaluation, features
from tfx_distribute.components.tuner import trials
from tfx_distribute.trainer_module.reporting import history

PartT = TypeVar("PartT")


@dataclass(frozen=True)
class Sources:
    """Addresses of the parts of a report; empty for those that a run does not have.

    Attributes:
      last_data: Folder of those of the last run that was not stopped, which have its
        statistics.
      model_run: Folder of the ModelRun: history and TensorBoard's logs.
      trials: Folder of the Tuner's `tuner_results`.
      blessed: True if the model meets all thresholds; None without thresholds.
      unusable_baseline: Why the baseline is not compared with; empty if it is.
      search: Properties of the `tuner_results`.
    """

    statistics: str = ""
    anomalies: str = ""
    last_data: str = ""
    model_run: str = ""
    evaluation: str = ""
    trials: str = ""
    blessed: bool | None = None
    unusable_baseline: str = ""
    search: Mapping[str, Any] = field(default_factory=dict)


def read(sources: Sources) -> dict[str, Any]:
    """Reads artifacts as arguments of `data.Report`, with `missing`."""
    missing: list[str] = []
    splits = _read("Data statistics", sources.statistics, features.read_splits, missing)
    last = _read("Statistics of the last run", sources.last_data, features.read_splits, missing)
    if last:
        splits = (*(splits or ()), dataclasses.replace(last[0], name=f"{last[0].name} of the last run"))
    anomalies = _read("Anomalies", sources.anomalies, features.read_anomalies, missing)
    records = _read("Training history", sources.model_run, history.read, missing)
    made, time_use = None, None
    if records is not None:
        made, found = curves.from_history(records), history.time_use(records)
        time_use = found if found.processes else None
        if not (made.metrics or made.throughput):
            missing.append("Training curves: the training has left no history; see its TensorBoard logs")
    parts = {
        "splits": splits,
        "anomalies": anomalies,
        "curves": made,
        "time_use": time_use,
        "evaluation": _read(
            "Evaluation",
            sources.evaluation,
            lambda folder: evaluation.read(folder, sources.blessed, sources.unusable_baseline),
            missing,
        ),
        "search": _read("Trials", sources.trials, lambda folder: read_search(folder, sources.search), missing),
    }
    return {**{name: part for name, part in parts.items() if part is not None}, "missing": tuple(missing)}


def _read(title: str, folder: str, read_folder: Callable[[str], PartT], missing: list[str]) -> PartT | None:
    """Reads a part; None if there is none, or as `missing` then says."""
    if not folder:
        return None
    try:
        if fileio.exists(folder):
            return read_folder(folder)
        missing.append(
            f"{title}: the files are not where the run wrote them ({folder}); they were deleted, or the folder moved"
        )
    # Files of other versions, and damaged ones, raise all kinds of errors.
    except Exception as error:
        logging.exception("%s of %s cannot be read", title, folder)
        reason = str(error).strip().splitlines()
        missing.append(f"{title}: {folder} cannot be read ({type(error).__name__}: {reason[0] if reason else 'no message'})")
    return None


def read_search(folder: str, properties: Mapping[str, Any]) -> trials.SearchResult:
    """Reads the trials of a search, given the folder and properties of its artifact."""
    objective, goal = str(properties.get("objective", "score")), str(properties.get("goal", "max"))
    with fileio.open(os.path.join(folder, trials.TABLE_FILE), "r") as file:
        return trials.SearchResult(objective, goal, tuple(trials.from_lines(file.read())))

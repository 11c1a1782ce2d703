"""Reads what a report shows from the artifacts of a run.

A part that cannot be read is left out, and the report says why.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from tfx_distribute.components.report import curves, features
from tfx_distribute.components.report.evaluation import read as read_evaluation
from tfx_distribute.components.tuner.trials import TABLE_FILE, SearchResult, from_lines
from tfx_distribute.trainer_module.errors import first_line
from tfx_distribute.trainer_module.reporting import history


def read(
    *,
    statistics: str = "",
    anomalies: str = "",
    last_data: str = "",
    model_run: str = "",
    evaluation: str = "",
    trials: str = "",
    blessed: bool | None = None,
    unusable_baseline: str = "",
    search: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Reads artifacts as arguments of `data.Report`, with `missing`.

    Args:
      statistics: Folder of the ExampleStatistics. Folders are empty for what a run does
        not have.
      anomalies: Folder of the ExampleAnomalies.
      last_data: Folder of those of the last run that was not stopped, which have its
        statistics.
      model_run: Folder of the ModelRun: history and TensorBoard's logs.
      evaluation: Folder of the ModelEvaluation.
      trials: Folder of the Tuner's `tuner_results`.
      blessed: True if the model meets all thresholds; None without thresholds.
      unusable_baseline: Why the baseline is not compared with; empty if it is.
      search: Properties of the `tuner_results`.
    """
    missing: list[str] = []

    def read_part(title: str, folder: str, read_folder: Callable[..., Any], *arguments: Any) -> Any:
        """Reads a part; None if there is none, or as `missing` then says."""
        if not folder:
            return None
        try:
            if fileio.exists(folder):
                return read_folder(folder, *arguments)
            reason = f"the files are not where the run wrote them ({folder}); they were deleted, or the folder moved"
        # Files of other versions, and damaged ones, raise all kinds of errors.
        except Exception as error:
            logging.exception("%s of %s cannot be read", title, folder)
            reason = f"{folder} cannot be read ({type(error).__name__}: {first_line(error)})"
        missing.append(f"{title}: {reason}")
        return None

    splits = read_part("Data statistics", statistics, features.read_splits)
    last = read_part("Statistics of the last run", last_data, features.read_splits)
    if last:
        splits = (*(splits or ()), dataclasses.replace(last[0], name=f"{last[0].name} of the last run"))
    records = read_part("Training history", model_run, history.read)
    made, time_use = None, None
    if records is not None:
        made, found = curves.from_history(records), history.time_use(records)
        time_use = found if found.processes else None
        if not (made.metrics or made.throughput):
            missing.append("Training curves: the training has left no history; see its TensorBoard logs")
    parts = {
        "splits": splits,
        "anomalies": read_part("Anomalies", anomalies, features.read_anomalies),
        "curves": made,
        "time_use": time_use,
        "evaluation": read_part("Evaluation", evaluation, read_evaluation, blessed, unusable_baseline),
        "search": read_part("Trials", trials, read_search, search or {}),
    }
    return {**{name: part for name, part in parts.items() if part is not None}, "missing": tuple(missing)}


def read_search(folder: str, properties: Mapping[str, Any]) -> SearchResult:
    """Reads the trials of a search, given the folder and properties of its artifact."""
    objective, goal = str(properties.get("objective", "score")), str(properties.get("goal", "max"))
    return SearchResult(objective, goal, from_lines(io_utils.read_string_file(os.path.join(folder, TABLE_FILE))))

"""Reads what a report shows from the artifacts of a run.

A part that cannot be read is left out, and the report says why.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
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


@dataclass
class _Parts:
    """Collects parts, and what is missing."""

    values: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def read(self, name: str, title: str, folder: str, read: Callable[[str], PartT]) -> PartT | None:
        """Reads a part, or notes why it is missing."""
        if not folder:
            return None
        with self.noting(title, folder):
            if not fileio.exists(folder):
                self.missing.append(
                    f"{title}: the files are not where the run wrote them ({folder}); they were deleted, or the folder moved"
                )
                return None
            part = read(folder)
            self.values[name] = part
            return part
        return None

    @contextlib.contextmanager
    def noting(self, title: str, folder: str) -> Iterator[None]:
        try:
            yield
        # Files of other versions, and damaged ones, raise all kinds of errors.
        except Exception as error:
            logging.exception("%s of %s cannot be read", title, folder)
            reason = str(error).strip().splitlines()
            self.missing.append(
                f"{title}: {folder} cannot be read ({type(error).__name__}: {reason[0] if reason else 'no message'})"
            )


def read(sources: Sources) -> dict[str, Any]:
    """Reads artifacts as arguments of `data.Report`, with `missing`."""
    parts = _Parts()
    parts.read("splits", "Data statistics", sources.statistics, features.read_splits)
    last = parts.read("last", "Statistics of the last run", sources.last_data, features.read_splits)
    parts.values.pop("last", None)
    if last:
        train = dataclasses.replace(last[0], name=f"{last[0].name} of the last run")
        parts.values["splits"] = (*parts.values.get("splits", ()), train)
    parts.read("anomalies", "Anomalies", sources.anomalies, features.read_anomalies)
    records = parts.read("history", "Training history", sources.model_run, history.read)
    parts.values.pop("history", None)
    made = curves.from_history(records or ())
    if made.metrics or made.throughput:
        parts.values["curves"] = made
        time_use = history.time_use(records or ())
        parts.values["time_use"] = time_use if time_use.processes else None
    elif records is not None:
        logs = parts.read("logs", "Training curves", sources.model_run, curves.read_scalars)
        parts.values.pop("logs", None)
        parts.values["curves"] = curves.from_scalars(logs or ())
        if not parts.values["curves"].metrics:
            parts.missing.append("Training curves: the training has left no history and no TensorBoard logs")
        else:
            parts.missing.append(
                "Throughput, and where the time went: the training has left TensorBoard logs only, as a run_fn and older "
                "versions do"
            )
    parts.read(
        "evaluation",
        "Evaluation",
        sources.evaluation,
        lambda folder: evaluation.read(folder, sources.blessed, sources.unusable_baseline),
    )
    parts.read("search", "Trials", sources.trials, lambda folder: read_search(folder, sources.search))
    return {**parts.values, "missing": tuple(parts.missing)}


def training_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how a model was trained, from the properties of its artifact."""
    internal = ("tfx_version", "is_external", "name", "state", "pipeline_name", "producer_component")
    return {name: value for name, value in properties.items() if name not in internal}


def read_search(folder: str, properties: Mapping[str, Any]) -> trials.SearchResult:
    """Reads the trials of a search, given the folder and properties of its artifact."""
    objective, goal = str(properties.get("objective", "score")), str(properties.get("goal", "max"))
    with fileio.open(os.path.join(folder, trials.TABLE_FILE), "r") as file:
        return trials.SearchResult(objective, goal, tuple(trials.from_lines(file.read())))

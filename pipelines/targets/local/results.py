"""Reads the result of a run from ML Metadata and from Evaluator's output."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfx_distribute.components.pusher import versions
from tfx_distribute.components.report import artifacts
from tfx_distribute.components.report import evaluation as evaluation_lib
from tfx_distribute.components.report.data import Cell, Evaluation
from tfx_distribute.components.tuner import trials
from tfx_distribute.pipelines.spec.pipeline import Metric, PipelineSpec
from tfx_distribute.pipelines.targets.local.runs import Run


@dataclass(frozen=True)
class MetricResult:
    """A metric of the trained model, over all examples of the evaluated splits.

    Attributes:
      name: The metric's class, as in the pipeline file.
      value: Its value.
      metric: Its thresholds.
      failed_on: Slices on which a threshold is not met, such as `hour=3`; the empty
        string stands for all examples. A threshold applies to every slice, as in TFMA.
      unmet_change: The difference from the latest blessed model's value, over all
        examples, if a threshold on it is not met.
    """

    name: str
    value: float
    metric: Metric
    failed_on: tuple[str, ...]
    unmet_change: float | None = None


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
      training: How the model was trained: strategy, num_workers, num_replicas,
        global_batch_size, train_steps, precision, base_model and how many weights it
        gave, train_seconds and `training_<metric>` values; with `export_best`,
        exported_epoch, exported_step and `exported_<metric>`; `time_<activity>`, the
        share of the time from 0 to 1 (see `time_use.ACTIVITIES`), and if a process
        holds the others back, slowest_process, slowest_process_holds_back (the share
        of the time for which they wait for it) and slowest_process_reason.
      model: Folder of the trained SavedModel.
      metrics: Metrics that Evaluator computed.
      blessed: True if all thresholds are met; None if there are no thresholds.
      unusable_baseline: Why changes against the latest blessed model are ignored, such
        as `its Loss on hour=3 is not finite` or `/models/7 cannot read these examples:
        ...`; empty if they count, or no model was blessed before.
      pushed: Folder of the pushed model; None if no model was pushed.
      search: The trials of the search for hyperparameters; None without `tune`.
      withdrawn: True if it was not pushed because a rollback has withdrawn the model.
      evaluation: Metrics by slice, with thresholds and baseline.
    """

    training: Mapping[str, Any]
    model: str
    metrics: tuple[MetricResult, ...] = field(default=())
    blessed: bool | None = None
    unusable_baseline: str = ""
    pushed: str | None = None
    search: trials.SearchResult | None = None
    withdrawn: bool = False
    evaluation: Evaluation | None = None


def read(run: Run, spec: PipelineSpec) -> RunResult:
    """Reads the result of a run of a pipeline that is complete."""
    model, written, pushed, trials_found = run.model, *map(run.find, ("ModelEvaluation", "PushedModel", "TunerResults"))
    evaluation = evaluation_lib.read(written.info.uri, run.blessed, run.unusable_baseline) if written else None
    properties = model.properties if model else {}
    folder = pushed.properties["pushed_destination"] if pushed and pushed.properties.get("pushed") else None
    return RunResult(
        training=dict(sorted(artifacts.training_properties(properties).items())),
        model=model.info.uri if model else "",
        metrics=list_metrics(evaluation, spec.evaluate.metrics) if spec.evaluate and evaluation else (),
        blessed=run.blessed,
        unusable_baseline=run.unusable_baseline,
        pushed=folder,
        search=artifacts.read_search(trials_found.info.uri, trials_found.properties) if trials_found else None,
        withdrawn=folder is None and bool(properties.get(versions.WITHDRAWN)),
        evaluation=evaluation,
    )


def list_metrics(evaluation: Evaluation, metrics: Mapping[str, Metric]) -> tuple[MetricResult, ...]:
    """Returns the metrics of a pipeline file, as an evaluation has them."""
    results = []
    for name, metric in metrics.items():
        shown = metric.config.get("name", name)
        cell = evaluation.overall.get(shown, Cell(math.nan))
        results.append(MetricResult(name, cell.value, metric, evaluation.list_failed(shown), cell.unmet_change))
    return tuple(results)

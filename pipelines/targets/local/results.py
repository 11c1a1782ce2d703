"""Reads the result of a run from ML Metadata and from Evaluator's output.

Nodes that ran and nodes from the cache are treated alike.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow_model_analysis as tfma
from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata

from tfx_distribute.components.evaluator.executor import UNUSABLE_BASELINE
from tfx_distribute.components.pusher import versions
from tfx_distribute.components.report import thresholds
from tfx_distribute.components.tuner import trials
from tfx_distribute.pipelines.spec.pipeline import Metric, PipelineSpec
from tfx_distribute.pipelines.targets.local import stored_artifacts


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
    """

    training: Mapping[str, Any]
    model: str
    metrics: tuple[MetricResult, ...] = field(default=())
    blessed: bool | None = None
    unusable_baseline: str = ""
    pushed: str | None = None
    search: trials.SearchResult | None = None
    withdrawn: bool = False


def read(connection: Any, executions: Mapping[str, int], spec: PipelineSpec) -> RunResult:
    """Reads the outputs of a run's executions, node -> id.

    `connection` is the connection configuration of the ML Metadata store.
    """
    with metadata.Metadata(connection) as handle:
        outputs = {node: _read_outputs(handle.store, execution) for node, execution in executions.items()}
    model = outputs["Trainer"]["model"]
    training = {
        name: getattr(value, value.WhichOneof("value"))
        for name, value in sorted(model.custom_properties.items())
        if name in _TRAINING_PROPERTIES or name.startswith(("training_", "exported_", "time_", "slowest_process"))
    }
    blessed: bool | None = None
    unusable_baseline = ""
    metrics: tuple[MetricResult, ...] = ()
    if spec.evaluate:
        if spec.evaluate.has_thresholds:
            properties = outputs["Evaluator"]["blessing"].custom_properties
            blessed = properties["blessed"].int_value == 1
            unusable_baseline = properties[UNUSABLE_BASELINE].string_value
        metrics = read_metrics(outputs["Evaluator"]["evaluation"].uri, spec.evaluate.metrics)
    pushed, withdrawn = None, False
    if spec.push:
        pushed = stored_artifacts.pushed_folder(outputs["Pusher"]["pushed_model"]) or None
        withdrawn = pushed is None and model.custom_properties[versions.WITHDRAWN].int_value == 1
    search = _read_search(outputs["Tuner"]["tuner_results"]) if spec.tune else None
    return RunResult(training, model.uri, metrics, blessed, unusable_baseline, pushed, search, withdrawn)


def _read_search(artifact: Any) -> trials.SearchResult:
    properties = artifact.custom_properties
    table = Path(artifact.uri, trials.TABLE_FILE).read_text(encoding="utf-8")
    return trials.SearchResult(
        properties["objective"].string_value, properties["goal"].string_value, tuple(trials.from_lines(table))
    )


_OUTPUT_EVENTS = (metadata_store_pb2.Event.OUTPUT, metadata_store_pb2.Event.INTERNAL_OUTPUT)
_TRAINING_PROPERTIES = (
    "strategy",
    "num_workers",
    "num_replicas",
    "per_replica_batch_size",
    "global_batch_size",
    "train_steps",
    "train_seconds",
    "precision",
    "base_model",
    "base_model_weights_taken",
    "base_model_weights_skipped",
    "base_model_entries_taken",
    "base_model_entries_new",
)


def _read_outputs(store: Any, execution: int) -> dict[str, Any]:
    """Returns the output artifacts of an execution by key; the last one of each key."""
    events = [event for event in store.get_events_by_execution_ids([execution]) if event.type in _OUTPUT_EVENTS]
    artifacts = {artifact.id: artifact for artifact in store.get_artifacts_by_id([event.artifact_id for event in events])}
    return {event.path.steps[0].key: artifacts[event.artifact_id] for event in events}


def read_metrics(uri: str, metrics: Mapping[str, Metric]) -> tuple[MetricResult, ...]:
    """Reads the metrics of an evaluation, and the thresholds that are not met.

    `uri` is the folder that Evaluator wrote.
    """
    values = {
        name: value
        for slice_key, outputs in tfma.load_eval_result(uri).slicing_metrics
        if slice_key == ()
        for sub_keys in outputs.values()
        for metric_values in sub_keys.values()  # of one class, of the top k, or of neither
        for name, value in metric_values.items()
    }
    failures = thresholds.read_failures(tfma.load_validation_result(uri))
    results = []
    for name, metric in metrics.items():
        reported_name = metric.config.get("name", name)
        value = float(values.get(reported_name, {}).get("doubleValue", math.nan))
        failed_on = tuple(sorted(thresholds.slice_name(key) for key, failed in failures if failed == reported_name))
        results.append(MetricResult(name, value, metric, failed_on, failures.get(((), reported_name))))
    return tuple(results)

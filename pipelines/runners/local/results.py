"""What came of a run, read from ML Metadata and Evaluator's output; the same for nodes that ran and nodes from cache."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow_model_analysis as tfma
from absl import logging
from ml_metadata.proto import metadata_store_pb2
from tensorflow_model_analysis.slicer import slicer_lib
from tfx.orchestration import metadata
from tfx.types.standard_artifacts import PushedModel

from tfx_distribute.components.evaluator import thresholds
from tfx_distribute.components.evaluator.executor import UNUSABLE_BASELINE
from tfx_distribute.pipelines.spec.pipeline import Metric, PipelineSpec


@dataclass(frozen=True)
class MetricResult:
    """One metric of the pushed or refused model, over all examples of the evaluated splits.

    Attributes:
      name: The metric's class, as in the pipeline file.
      value: Its value.
      metric: Its thresholds.
      failed_on: Slices on which a threshold is not met, such as `hour=3`; the empty string is all examples. A threshold
        holds for every slice, as in TFMA.
      not_finite_on: Those of them where the metric is missing, NaN or infinite.
    """

    name: str
    value: float
    metric: Metric
    failed_on: tuple[str, ...]
    not_finite_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """What came of a run.

    Attributes:
      training: How the model was trained: strategy, num_workers, num_replicas, global_batch_size, train_steps,
        precision, and `training_<metric>` values.
      metrics: What Evaluator found.
      blessed: Whether all thresholds are met; None where there are none.
      unusable_baseline: Metrics of the latest blessed model that are not finite, so that changes against it do not count,
        such as `Loss` or `Loss on hour=3`; empty where all are finite or there is no such model.
      model: Folder of the trained SavedModel.
      pushed: Folder of the pushed model; None if none was.
    """

    training: Mapping[str, Any]
    model: str
    metrics: tuple[MetricResult, ...] = field(default=())
    blessed: bool | None = None
    unusable_baseline: str = ""
    pushed: str | None = None


def read(connection: Any, executions: Mapping[str, int], spec: PipelineSpec) -> RunResult:
    """Reads what the executions of a run put out.

    Args:
      connection: Connection of the ML Metadata store.
      executions: Node -> id of its execution.
      spec: What the pipeline is.
    """
    with metadata.Metadata(connection) as handle:
        outputs = {node: _outputs(handle.store, execution) for node, execution in executions.items()}
    model = outputs["Trainer"]["model"]
    training = {
        name: getattr(value, value.WhichOneof("value"))
        for name, value in model.custom_properties.items()
        if name in _TRAINING or name.startswith("training_")
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
    pushed = None
    if spec.push:
        pushed = _pushed_folder(outputs["Pusher"]["pushed_model"])
    return RunResult(training, model.uri, metrics, blessed, unusable_baseline, pushed)


def mark_removed_pushes(store: Any) -> None:
    """Marks pushed models as deleted whose version folders have been removed, so that the cache does not use them."""
    for artifact in store.get_artifacts_by_type(PushedModel.TYPE_NAME):
        folder = _pushed_folder(artifact)
        if (
            artifact.state == metadata_store_pb2.Artifact.LIVE
            and folder
            and "://" not in folder
            and not os.path.exists(folder)
        ):
            logging.info("%s has been removed; a model that was pushed there is pushed again", folder)
            artifact.state = metadata_store_pb2.Artifact.DELETED
            store.put_artifacts([artifact])


def _pushed_folder(pushed: Any) -> str | None:
    properties = pushed.custom_properties
    return properties["pushed_destination"].string_value if properties["pushed"].int_value else None


_OUTPUT = (metadata_store_pb2.Event.OUTPUT, metadata_store_pb2.Event.INTERNAL_OUTPUT)
_TRAINING = (
    "strategy",
    "num_workers",
    "num_replicas",
    "per_replica_batch_size",
    "global_batch_size",
    "train_steps",
    "precision",
)


def _outputs(store: Any, execution: int) -> dict[str, Any]:
    """The output artifacts of an execution by their key; the last of each."""
    events = [event for event in store.get_events_by_execution_ids([execution]) if event.type in _OUTPUT]
    artifacts = {artifact.id: artifact for artifact in store.get_artifacts_by_id([event.artifact_id for event in events])}
    return {event.path.steps[0].key: artifacts[event.artifact_id] for event in events}


def read_metrics(uri: str, wanted: Mapping[str, Metric]) -> tuple[MetricResult, ...]:
    """Returns the metrics of an evaluation, and the thresholds that are not met.

    Args:
      uri: Folder that Evaluator wrote.
      wanted: Name of a metric's class -> its thresholds.
    """
    values = {
        name: value
        for of_slice, of_outputs in tfma.load_eval_result(uri).slicing_metrics
        if of_slice == ()
        for of_sub_keys in of_outputs.values()
        for of_names in of_sub_keys.values()  # of one class, of the top k, or neither
        for name, value in of_names.items()
    }
    failed: dict[str, dict[str, bool]] = {}  # metric -> slice -> whether the metric is finite there
    for found in tfma.load_validation_result(uri).metric_validations_per_slice:
        where = thresholds.slice_name(slicer_lib.deserialize_slice_key(found.slice_key))
        for failure in found.failures:
            is_finite = failure.message != thresholds.NOT_FINITE
            failed.setdefault(failure.metric_key.name, {})[where] = is_finite
    return tuple(
        MetricResult(
            name=name,
            value=float(values.get(reported, {}).get("doubleValue", math.nan)),
            metric=metric,
            failed_on=tuple(sorted(failed.get(reported, ()))),
            not_finite_on=tuple(sorted(where for where, is_finite in failed.get(reported, {}).items() if not is_finite)),
        )
        for name, metric in wanted.items()
        for reported in [metric.config.get("name", name)]
    )

"""What came of a run, read from ML Metadata and Evaluator's output; the same for nodes that ran and nodes from cache."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata

from tfx_distribute.pipelines.spec import Metric, PipelineSpec


@dataclass(frozen=True)
class MetricResult:
    """One metric of the pushed or refused model, over all examples of the evaluated splits.

    Attributes:
      name: The metric's class, as in the pipeline file.
      value: Its value.
      metric: Its thresholds.
      failed_on: Slices on which a threshold is not met, such as `hour=3`; the empty string is all examples. A threshold
        holds for every slice, as in TFMA.
    """

    name: str
    value: float
    metric: Metric
    failed_on: tuple[str, ...]


@dataclass(frozen=True)
class RunResult:
    """What came of a run.

    Attributes:
      training: How the model was trained: strategy, num_workers, num_replicas, global_batch_size, train_steps,
        precision, and `training_<metric>` values.
      metrics: What Evaluator found.
      blessed: Whether all thresholds are met; None where there are none.
      model: Folder of the trained SavedModel.
      pushed: Folder of the pushed model; None if none was.
    """

    training: Mapping[str, Any]
    model: str
    metrics: tuple[MetricResult, ...] = field(default=())
    blessed: bool | None = None
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
    metrics: tuple[MetricResult, ...] = ()
    if spec.evaluate:
        if spec.evaluate.has_thresholds:
            blessed = outputs["Evaluator"]["blessing"].custom_properties["blessed"].int_value == 1
        metrics = _metrics(outputs["Evaluator"]["evaluation"].uri, spec.evaluate.metrics)
    pushed = None
    if spec.push:
        properties = outputs["Pusher"]["pushed_model"].custom_properties
        pushed = properties["pushed_destination"].string_value if properties["pushed"].int_value else None
    return RunResult(training=training, model=model.uri, metrics=metrics, blessed=blessed, pushed=pushed)


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


def _metrics(uri: str, wanted: Mapping[str, Metric]) -> tuple[MetricResult, ...]:
    import tensorflow_model_analysis as tfma

    values = tfma.load_eval_result(uri).get_metrics_for_slice(slice_name=()) or {}
    failed: dict[str, set[str]] = {}
    for found in tfma.load_validation_result(uri).metric_validations_per_slice:
        where = ", ".join(_slice_name(key) for key in found.slice_key.single_slice_keys)
        for failure in found.failures:
            failed.setdefault(failure.metric_key.name, set()).add(where)
    return tuple(
        MetricResult(
            name=name,
            value=float(values.get(name, {}).get("doubleValue", math.nan)),
            metric=metric,
            failed_on=tuple(sorted(failed.get(name, ()))),
        )
        for name, metric in wanted.items()
    )


def _slice_name(key: Any) -> str:
    value = getattr(key, key.WhichOneof("kind"))
    return f"{key.column}={value.decode(errors='replace') if isinstance(value, bytes) else value}"

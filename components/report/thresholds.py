"""Judges metrics against thresholds: pure functions from TFMA's documents to a verdict.

TFMA compares numbers as they are. A NaN metric therefore passes where thresholds on
change are dropped, as they are for the first model, and a NaN baseline fails every
later model. TFMA also divides a change by the signed baseline: against a negative
baseline, a worse model passes and a better one fails. So thresholds are judged here.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import tensorflow_model_analysis as tfma  # 0.52 has an EvalConfig only once TFX is imported
from tensorflow_model_analysis.metrics.metric_types import MetricKey as Key
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2, validation_result_pb2
from tensorflow_model_analysis.slicer import slicer_lib

SliceKey = tuple[Any, ...]
_UNUSABLE = "The metric is missing or not finite, or the example weights add up to 0 or less."
TOTAL_WEIGHT = "total_example_weight"  # the metric that `add_total_weights` adds
_OVERALL: SliceKey = ()  # all examples


@dataclass
class SliceMetrics:
    """The metrics of one slice by key, without the model's name; NaN if missing."""

    candidate: dict[Key, float] = field(default_factory=dict)
    baseline: dict[Key, float] = field(default_factory=dict)


def judge(
    config: config_pb2.EvalConfig,
    metrics: Iterable[metrics_for_slice_pb2.MetricsForSlice],
    validation: validation_result_pb2.ValidationResult,
    has_baseline: bool,
) -> tuple[validation_result_pb2.ValidationResult, str]:
    """Judges metrics, and corrects TFMA's validation accordingly.

    - A metric with a threshold has to be finite on each slice that the threshold
      applies to. This holds for the first model, too.
    - If the weights of the examples on a slice add up to 0 or less, no threshold is met
      there: Keras divides 0 by 0 and gets 0, a perfect loss.
    - A metric is not compared with a baseline's that is not finite over all examples.
      If only that on a slice is not finite, it is not compared there.
    - A relative change is a fraction of the baseline's magnitude, so it has the sign of
      the difference. Against a baseline of 0, a change for the worse never meets a
      relative threshold.

    `config` is the evaluation as it was written, with its thresholds on change; the
    metrics are those of the new model and of the baseline.

    Returns the validation, and the metrics of the baseline that are not compared with,
    separated by commas.
    """
    slices = read_slices(metrics, config, has_baseline)
    thresholds = sorted(read_thresholds(config).items())
    judged = validation_result_pb2.ValidationResult()
    judged.CopyFrom(validation)
    del judged.metric_validations_per_slice[:]
    cross_slice = [result for result in validation.metric_validations_per_slice if result.HasField("cross_slice_key")]
    judged.metric_validations_per_slice.extend(cross_slice)
    unusable: list[str] = []
    overall = slices.get(_OVERALL)
    for slice_key, values in slices.items():
        failures = []
        for key, limits in thresholds:
            limits_here = [
                limit
                for spec, limit in limits
                if spec is None or slicer_lib.SingleSliceSpec(spec=spec).is_slice_applicable(slice_key)
            ]
            value = values.candidate.get(key, math.nan)
            baseline = values.baseline.get(key, math.nan) if has_baseline else None
            if not (math.isfinite(value) and _has_weight(key, values)):
                failures += [_make_failure(key, value, limit, _UNUSABLE) for limit in limits_here]
                continue
            if baseline is not None and any(isinstance(limit, config_pb2.GenericChangeThreshold) for limit in limits_here):
                is_usable_at_all = overall is None or math.isfinite(overall.baseline.get(key, math.nan))
                if not (is_usable_at_all and math.isfinite(baseline)):
                    baseline = None
                    # Naming all slices would only repeat it.
                    unusable.append(describe_metric(key, slice_key if is_usable_at_all else _OVERALL))
            failures += _judge(key, value, baseline, limits_here)
        if failures:
            serialized_key = slicer_lib.serialize_slice_key(slice_key)
            judged.metric_validations_per_slice.add(slice_key=serialized_key, failures=failures)
    judged.validation_ok = not (
        judged.metric_validations_per_slice
        or validation.missing_slices
        or validation.missing_cross_slices
        or validation.missing_thresholds
        # TFMA refused the model for another reason, e.g. because there are no examples.
        or (not validation.validation_ok and not validation.metric_validations_per_slice)
    )
    return judged, ", ".join(dict.fromkeys(unusable))


def add_total_weights(config: config_pb2.EvalConfig) -> config_pb2.EvalConfig:
    """Adds the total weight of the examples to the metrics of a config with thresholds.

    `judge` needs it. The threshold on it is always met: without a baseline, as for the
    first model, TFX drops thresholds on change, and it judges no model without any.

    Returns a copy, with an ExampleCount named `TOTAL_WEIGHT` for each output of the
    model.
    """
    result = config_pb2.EvalConfig()
    result.CopyFrom(config)
    if not read_thresholds(config):
        return result
    added: list[config_pb2.MetricsSpec] = []
    for spec in config.metrics_specs:
        total = config_pb2.MetricsSpec(model_names=spec.model_names, output_names=spec.output_names)
        if spec.HasField("example_weights"):
            total.example_weights.CopyFrom(spec.example_weights)
        if not spec.output_names and any(model.example_weight_keys for model in config.model_specs):
            # TFMA fails to add up the weights of several outputs.
            total.example_weights.CopyFrom(config_pb2.ExampleWeightOptions(unweighted=True))
        count = total.metrics.add(class_name="ExampleCount", config=json.dumps({"name": TOTAL_WEIGHT}))
        count.threshold.value_threshold.lower_bound.value = -math.inf
        if total not in added:
            added.append(total)
    result.metrics_specs.extend(added)
    return result


def slice_name(slice_key: SliceKey) -> str:
    """Returns a slice's name, such as `hour=3`; empty for all examples."""
    return ", ".join(
        f"{column}={value.decode(errors='replace') if isinstance(value, bytes) else value}" for column, value in slice_key
    )


def read_thresholds(config: config_pb2.EvalConfig) -> dict[Key, list[tuple[Any, Any]]]:
    """Returns the thresholds on each metric of the new model.

    Each has the slicing specification that it is on; None for every slice.
    """
    written = config_pb2.EvalConfig()
    written.CopyFrom(config)
    for metrics_spec in written.metrics_specs:
        if list(metrics_spec.model_names) == [""]:  # as TFMA stores it: it then finds no weights of that model
            del metrics_spec.model_names[:]
        for metric in metrics_spec.metrics:
            name = json.loads(metric.config or "{}").get("name")
            if metric.module and name:  # which need not be importable where an evaluation is read
                metric.module, metric.class_name, metric.config = "", "ExampleCount", json.dumps({"name": name})
    updated = tfma.utils.update_eval_config_with_defaults(written, has_baseline=True)
    baselines = {spec.name for spec in updated.model_specs if spec.is_baseline}
    thresholds: dict[Key, list[tuple[Any, Any]]] = {}
    for key, limits in tfma.metrics.metric_thresholds_from_metrics_specs(updated.metrics_specs, eval_config=updated).items():
        if key.model_name not in baselines:
            on_slices = [(spec, limit) for spec, limit in limits if not isinstance(spec, config_pb2.CrossSlicingSpec)]
            thresholds.setdefault(_without_model(key), []).extend(on_slices)
    return thresholds


def read_slices(
    metrics: Iterable[metrics_for_slice_pb2.MetricsForSlice], config: config_pb2.EvalConfig, has_baseline: bool
) -> dict[SliceKey, SliceMetrics]:
    """Returns the metrics of each slice, all examples first."""
    updated = tfma.utils.update_eval_config_with_defaults(config, has_baseline=has_baseline, rubber_stamp=True)
    baselines = {spec.name for spec in updated.model_specs if spec.is_baseline}
    slices: dict[SliceKey, SliceMetrics] = {}
    if not config.slicing_specs or config_pb2.SlicingSpec() in config.slicing_specs:
        slices[_OVERALL] = SliceMetrics()  # TFMA reports no metrics for it if there are no examples
    for slice_metrics in metrics:
        if slice_metrics.HasField("cross_slice_key"):
            continue
        values = slices.setdefault(slicer_lib.deserialize_slice_key(slice_metrics.slice_key), SliceMetrics())
        for metric in slice_metrics.metric_keys_and_values:
            key = Key.from_proto(metric.key)
            if not key.is_diff:
                model = values.baseline if key.model_name in baselines else values.candidate
                model[_without_model(key)] = _to_number(metric.value)
    return slices


def read_failures(validation: validation_result_pb2.ValidationResult) -> dict[tuple[SliceKey, Key], float | None]:
    """Returns the slice and key of each metric with an unmet threshold.

    The value is the difference from the baseline if a threshold on change is not met,
    else None.
    """
    failures: dict[tuple[SliceKey, Key], float | None] = {}
    for on_slice in validation.metric_validations_per_slice:
        slice_key = slicer_lib.deserialize_slice_key(on_slice.slice_key)
        for failure in on_slice.failures:
            found = (slice_key, _without_model(Key.from_proto(failure.metric_key)))
            failures.setdefault(found, None)
            if failure.metric_key.is_diff:
                failures[found] = failure.metric_value.double_value.value
    return failures


def _has_weight(key: Key, values: SliceMetrics) -> bool:
    """Returns False if the weights of the examples add up to 0 or less."""
    kind = (TOTAL_WEIGHT, key.output_name, key.example_weighted)
    totals = values.candidate.items()
    return all(value > 0 for total, value in totals if (total.name, total.output_name, total.example_weighted) == kind)


def _to_number(value: metrics_for_slice_pb2.MetricValue) -> float:
    kind = value.WhichOneof("type")
    if kind == "double_value":
        return float(value.double_value.value)
    if kind == "bounded_value":
        return float(value.bounded_value.value.value)
    if kind == "array_value":
        array = value.array_value
        values = [*array.float32_values, *array.float64_values, *array.int32_values, *array.int64_values]
        if len(values) == 1:  # TFMA treats it as a number
            return float(values[0])
    return math.nan  # TFMA itself fails on a threshold on anything else


def _judge(key: Key, value: float, baseline: float | None, limits: Iterable[Any]) -> Iterable[Any]:
    """Yields a failure for each threshold that is not met; a baseline may be None."""
    for limit in limits:
        if isinstance(limit, config_pb2.GenericValueThreshold):
            lower = limit.lower_bound.value if limit.HasField("lower_bound") else -math.inf
            upper = limit.upper_bound.value if limit.HasField("upper_bound") else math.inf
            if not lower <= value <= upper:
                yield _make_failure(key, value, limit)
        elif baseline is not None and not _is_met(limit, value - baseline, abs(baseline)):
            yield _make_failure(key._replace(is_diff=True), value - baseline, limit)


def _is_met(limit: config_pb2.GenericChangeThreshold, difference: float, magnitude: float) -> bool:
    bounds = [limit.absolute.value] if limit.HasField("absolute") else []
    bounds += [limit.relative.value * magnitude] if limit.HasField("relative") else []
    if limit.direction == tfma.MetricDirection.HIGHER_IS_BETTER:
        return all(difference >= bound for bound in bounds)
    if limit.direction == tfma.MetricDirection.LOWER_IS_BETTER:
        return all(difference <= bound for bound in bounds)
    return not bounds  # TFMA, too, refuses a change threshold without a direction


def _make_failure(key: Key, value: float, limit: Any, message: str = "") -> validation_result_pb2.ValidationFailure:
    failure = validation_result_pb2.ValidationFailure(metric_key=key.to_proto(), message=message)
    failure.metric_value.double_value.value = value
    if isinstance(limit, config_pb2.GenericChangeThreshold):
        failure.metric_threshold.change_threshold.CopyFrom(limit)
    else:
        failure.metric_threshold.value_threshold.CopyFrom(limit)
    return failure


def _without_model(key: Key) -> Key:
    return key._replace(model_name="", is_diff=False)


def describe_metric(key: Key, slice_key: SliceKey) -> str:
    """Returns the name of a metric, with the slice unless it is of all examples."""
    return f"{key.name} on {slice_name(slice_key)}" if slice_key else str(key.name)

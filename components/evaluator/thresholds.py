"""Judges metrics against thresholds. Pure: documents of TFMA in, a document of TFMA out.

TFMA compares numbers as they are. So a NaN metric passes where a threshold on change is dropped, as it is for the first
model, and a NaN baseline fails every later model. It also divides a change by the baseline with its sign: against a
negative baseline, a worse model passes and a better one fails. Changes are therefore judged here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics.metric_types import MetricKey as Key
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2, validation_result_pb2
from tensorflow_model_analysis.slicer import slicer_lib

SliceKey = tuple[Any, ...]
NOT_FINITE = "The metric is missing or not finite."  # message of a failure
_OVERALL: SliceKey = ()


@dataclass(frozen=True)
class Verdict:
    """A model's validation.

    Attributes:
      validation: Which thresholds are not met on which slice, and whether the model is good.
      not_finite: The metrics with a threshold that are missing, NaN or infinite, such as `Loss` or `Loss on hour=3`.
      unusable_baseline: The metrics of the baseline that are, as text; empty if all can be compared with.
    """

    validation: validation_result_pb2.ValidationResult
    not_finite: tuple[str, ...] = ()
    unusable_baseline: str = ""


@dataclass
class _Slice:
    """The metrics of one slice, by their keys without the model's name; a missing one is NaN."""

    candidate: dict[Key, float] = field(default_factory=dict)
    baseline: dict[Key, float] = field(default_factory=dict)


def judge(
    config: tfma.EvalConfig,
    metrics: Iterable[metrics_for_slice_pb2.MetricsForSlice],
    validation: validation_result_pb2.ValidationResult,
    has_baseline: bool,
) -> Verdict:
    """Corrects TFMA's validation where metrics are not finite, and judges changes against the baseline.

    - A metric with a threshold has to be finite on each slice that the threshold applies to, of the first model too.
    - A baseline with a metric that is not finite, over all examples, is not used: only bounds count. If the metric is
      finite over all examples but not on a slice, the baseline is not used on that slice.
    - A relative change is a fraction of the baseline's magnitude, so that its sign is that of the difference. Against
      a baseline of 0, a change for the worse meets no relative threshold.

    Args:
      config: The evaluation, as it was written: with thresholds on change.
      metrics: The metrics of the new model and of the baseline.
      validation: TFMA's verdict.
      has_baseline: True if there is a baseline.
    """
    wanted = _thresholds(config)
    slices = _slices(metrics, config, has_baseline)
    failures = {
        slicer_lib.deserialize_slice_key(found.slice_key): list(found.failures)
        for found in validation.metric_validations_per_slice
        if not found.HasField("cross_slice_key")
    }
    of_pairs = [found for found in validation.metric_validations_per_slice if found.HasField("cross_slice_key")]
    unusable = _unusable(wanted, slices) if has_baseline else {}
    judged, not_finite = {}, []
    for name, found in slices.items():
        ignored = name in unusable or _OVERALL in unusable
        kept = [failure for failure in failures.get(name, ()) if not failure.metric_threshold.HasField("change_threshold")]
        for key, limits in wanted.items():
            here = [limit for where, limit in limits if _applies([(where, limit)], name)]
            value = found.candidate.get(key, math.nan)
            if here and not math.isfinite(value):
                not_finite.append(_where(key, name))
                kept = [failure for failure in kept if _bare(Key.from_proto(failure.metric_key)) != key]
                kept += [_failure(key, value, limit, NOT_FINITE) for limit in here]
            elif has_baseline and not ignored:
                kept += _changes_for_the_worse(key, value, found.baseline.get(key, math.nan), here)
        judged[name] = kept
    corrected = validation_result_pb2.ValidationResult()
    corrected.CopyFrom(validation)
    del corrected.metric_validations_per_slice[:]
    corrected.metric_validations_per_slice.extend(of_pairs)
    for name, kept in judged.items():
        if kept:
            corrected.metric_validations_per_slice.add(slice_key=slicer_lib.serialize_slice_key(name), failures=kept)
    corrected.validation_ok = not (
        corrected.metric_validations_per_slice
        or validation.missing_slices
        or validation.missing_cross_slices
        or validation.missing_thresholds
        # Refused for another reason, such as that there are no examples.
        or (not validation.validation_ok and not validation.metric_validations_per_slice)
    )
    # Not all slices, where the baseline is not used on any.
    reported = {_OVERALL: unusable[_OVERALL]} if _OVERALL in unusable else unusable
    texts = [_where(key, name) for name, keys in reported.items() for key in keys]
    return Verdict(corrected, tuple(not_finite), ", ".join(texts))


def slice_name(key: SliceKey) -> str:
    """Returns a slice's name, such as `hour=3`; empty for all examples."""
    return ", ".join(
        f"{column}={value.decode(errors='replace') if isinstance(value, bytes) else value}" for column, value in key
    )


def _thresholds(config: tfma.EvalConfig) -> dict[Key, list[tuple[Any, Any]]]:
    """Metric -> slices and thresholds on them; a slice of None is every one."""
    updated = tfma.utils.update_eval_config_with_defaults(config, has_baseline=True)
    baselines = {spec.name for spec in updated.model_specs if spec.is_baseline}
    found: dict[Key, list[tuple[Any, Any]]] = {}
    for key, limits in tfma.metrics.metric_thresholds_from_metrics_specs(updated.metrics_specs, eval_config=updated).items():
        if key.model_name not in baselines:
            single = [(where, limit) for where, limit in limits if not isinstance(where, config_pb2.CrossSlicingSpec)]
            found.setdefault(_bare(key), []).extend(single)
    return found


def _slices(
    metrics: Iterable[metrics_for_slice_pb2.MetricsForSlice], config: tfma.EvalConfig, has_baseline: bool
) -> dict[SliceKey, _Slice]:
    updated = tfma.utils.update_eval_config_with_defaults(config, has_baseline=has_baseline, rubber_stamp=True)
    baselines = {spec.name for spec in updated.model_specs if spec.is_baseline}
    slices: dict[SliceKey, _Slice] = {}
    if not config.slicing_specs or tfma.SlicingSpec() in config.slicing_specs:
        slices[_OVERALL] = _Slice()  # which has no metrics where there are no examples
    for of_slice in metrics:
        if of_slice.HasField("cross_slice_key"):
            continue
        found = slices.setdefault(slicer_lib.deserialize_slice_key(of_slice.slice_key), _Slice())
        for metric in of_slice.metric_keys_and_values:
            key = Key.from_proto(metric.key)
            if key.is_diff:
                continue
            model = found.baseline if key.model_name in baselines else found.candidate
            model[_bare(key)] = _number(metric.value)
    return slices


def _unusable(wanted: dict[Key, list[tuple[Any, Any]]], slices: dict[SliceKey, _Slice]) -> dict[SliceKey, list[Key]]:
    """Slice -> metrics that are to be compared there with the baseline's, which is not finite; without empty ones."""
    compared = {
        key: [(where, limit) for where, limit in limits if isinstance(limit, config_pb2.GenericChangeThreshold)]
        for key, limits in sorted(wanted.items())
    }
    found = {
        name: [
            key
            for key, limits in compared.items()
            if _applies(limits, name) and not math.isfinite(of_slice.baseline.get(key, math.nan))
        ]
        for name, of_slice in slices.items()
    }
    return {name: keys for name, keys in found.items() if keys}


def _number(value: metrics_for_slice_pb2.MetricValue) -> float:
    kind = value.WhichOneof("type")
    if kind == "double_value":
        return float(value.double_value.value)
    if kind == "bounded_value":
        return float(value.bounded_value.value.value)
    if kind == "array_value":
        array = value.array_value
        values = [*array.float32_values, *array.float64_values, *array.int32_values, *array.int64_values]
        if len(values) == 1:  # which TFMA takes for a number
            return float(values[0])
    return math.nan  # TFMA fails on a threshold on anything else before it can be judged


def _changes_for_the_worse(key: Key, value: float, baseline: float, limits: Iterable[Any]) -> Iterable[Any]:
    """Returns a failure for each threshold on change that is not met."""
    for limit in limits:
        if isinstance(limit, config_pb2.GenericChangeThreshold) and not _is_met(limit, value - baseline, abs(baseline)):
            yield _failure(key._replace(is_diff=True), value - baseline, limit)


def _is_met(limit: config_pb2.GenericChangeThreshold, difference: float, magnitude: float) -> bool:
    limits = []
    if limit.HasField("absolute"):
        limits.append(limit.absolute.value)
    if limit.HasField("relative"):
        limits.append(limit.relative.value * magnitude)
    if limit.direction == tfma.MetricDirection.HIGHER_IS_BETTER:
        return all(difference >= value for value in limits)
    if limit.direction == tfma.MetricDirection.LOWER_IS_BETTER:
        return all(difference <= value for value in limits)
    return not limits  # no direction: TFMA refuses it, too


def _failure(key: Key, value: float, limit: Any, message: str = "") -> validation_result_pb2.ValidationFailure:
    failure = validation_result_pb2.ValidationFailure(metric_key=key.to_proto(), message=message)
    failure.metric_value.double_value.value = value
    if isinstance(limit, config_pb2.GenericChangeThreshold):
        failure.metric_threshold.change_threshold.CopyFrom(limit)
    else:
        failure.metric_threshold.value_threshold.CopyFrom(limit)
    return failure


def _applies(limits: Iterable[tuple[Any, Any]], name: SliceKey) -> bool:
    return any(where is None or slicer_lib.SingleSliceSpec(spec=where).is_slice_applicable(name) for where, _ in limits)


def _bare(key: Key) -> Key:
    return key._replace(model_name="", is_diff=False)


def _where(key: Key, name: SliceKey) -> str:
    return f"{key.name} on {slice_name(name)}" if name else str(key.name)

"""Judges metrics against thresholds. Pure: documents of TFMA in, a document of TFMA out.

TFMA compares numbers as they are. So a NaN metric passes where a threshold on change is dropped, as it is for the first
model, and a NaN baseline fails every later model.
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
    """Corrects TFMA's validation where metrics are not finite.

    - A metric with a threshold has to be finite on each slice that the threshold applies to, of the first model too.
    - A baseline with a metric that is not finite, over all examples, is not used: only bounds count. If the metric is
      finite over all examples but not on a slice, the baseline is not used on that slice.
    - A change relative to a baseline of 0 has to be in the right direction, or none.

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
        kept = [failure for failure in failures.get(name, ()) if not _is_excused(failure, found, ignored)]
        for key, limits in wanted.items():
            if _applies(limits, name) and not math.isfinite(found.candidate.get(key, math.nan)):
                not_finite.append(_where(key, name))
                kept = [failure for failure in kept if _bare(Key.from_proto(failure.metric_key)) != key]
                kept += _not_finite(key, [limit for where, limit in limits if _applies([(where, limit)], name)], found)
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
    # Arrays and the like count as finite: TFMA refuses thresholds on them.
    return math.nan if kind in (None, "unknown_type", "debug_message") else 0.0


def _is_excused(failure: Any, found: _Slice, without_baseline: bool) -> bool:
    """True if TFMA refuses a change that cannot be compared with, or is relative to 0 and not for the worse."""
    limit = failure.metric_threshold
    if not limit.HasField("change_threshold"):
        return False
    key = _bare(Key.from_proto(failure.metric_key))
    if without_baseline:
        return True
    if found.baseline.get(key) != 0 or not limit.change_threshold.HasField("relative"):
        return False
    sign = -1 if limit.change_threshold.direction == tfma.MetricDirection.LOWER_IS_BETTER else 1
    change = sign * found.candidate.get(key, math.nan)
    enough = sign * limit.change_threshold.absolute.value if limit.change_threshold.HasField("absolute") else 0.0
    return change >= max(0.0, enough)


def _not_finite(key: Key, limits: Iterable[Any], found: _Slice) -> Iterable[Any]:
    for limit in limits:
        failure = validation_result_pb2.ValidationFailure(metric_key=key.to_proto(), message=NOT_FINITE)
        failure.metric_value.double_value.value = found.candidate.get(key, math.nan)
        if isinstance(limit, config_pb2.GenericChangeThreshold):
            failure.metric_threshold.change_threshold.CopyFrom(limit)
        else:
            failure.metric_threshold.value_threshold.CopyFrom(limit)
        yield failure


def _applies(limits: Iterable[tuple[Any, Any]], name: SliceKey) -> bool:
    return any(where is None or slicer_lib.SingleSliceSpec(spec=where).is_slice_applicable(name) for where, _ in limits)


def _bare(key: Key) -> Key:
    return key._replace(model_name="", is_diff=False)


def _where(key: Key, name: SliceKey) -> str:
    return f"{key.name} on {slice_name(name)}" if name else str(key.name)

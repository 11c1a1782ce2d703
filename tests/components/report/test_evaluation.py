"""Tests reading metrics by slice, thresholds and plots from TFMA's documents."""

import math

import pytest
import tensorflow_model_analysis as tfma
from google.protobuf import text_format
from kfp import dsl
from tensorflow_model_analysis.metrics.metric_types import MetricKey as Key
from tensorflow_model_analysis.proto import metrics_for_slice_pb2, validation_result_pb2

from tfx_distribute.components.report import artifact_types, evaluation
from tfx_distribute.components.report.data import Cell, Evaluation, Slice
from tfx_distribute.pipelines.spec.pipeline import Change, Metric
from tfx_distribute.pipelines.targets import tfx_pipeline

CONFIG = """
model_specs { name: "candidate" } model_specs { name: "baseline" is_baseline: true }
slicing_specs {} slicing_specs { feature_keys: "hour" }
metrics_specs {
  model_names: ["candidate", "baseline"]
  metrics { class_name: "AUC" config: '{"name": "AUC"}' threshold {
    value_threshold { lower_bound { value: 0.8 } }
    change_threshold { direction: HIGHER_IS_BETTER absolute { value: -0.01 } }
  } }
}
"""


def on_slice(hour: int | None, candidate: float, baseline: float) -> metrics_for_slice_pb2.MetricsForSlice:
    metrics = metrics_for_slice_pb2.MetricsForSlice()
    if hour is not None:
        metrics.slice_key.single_slice_keys.add(column="hour", int64_value=hour)
    for name, value in (("candidate", candidate), ("baseline", baseline)):
        metrics.metric_keys_and_values.add(key=Key("AUC", name).to_proto()).value.double_value.value = value
    return metrics


def test_slices_against_thresholds_and_baseline():
    """All examples come first, then slices that fail, then others by number."""
    config = text_format.Parse(CONFIG, tfma.EvalConfig())
    metrics = [on_slice(10, 0.9, 0.9), on_slice(9, 0.9, 0.9), on_slice(None, 0.85, 0.84), on_slice(11, 0.7, 0.9)]
    validation = validation_result_pb2.ValidationResult()
    failed = validation.metric_validations_per_slice.add(slice_key=metrics[3].slice_key)
    failure = failed.failures.add(metric_key=Key("AUC", is_diff=True).to_proto())
    failure.metric_value.double_value.value = -0.2
    slices = (
        Slice("", {"AUC": Cell(0.85, 0.84)}),
        Slice("hour=11", {"AUC": Cell(0.7, 0.9, failed=True, unmet_change=-0.2)}),
        Slice("hour=9", {"AUC": Cell(0.9, 0.9)}),
        Slice("hour=10", {"AUC": Cell(0.9, 0.9)}),
    )
    thresholds = {"AUC": ">= 0.8, change of at least -0.01"}
    assert evaluation.to_evaluation(config, metrics, validation) == Evaluation(slices, thresholds)


def test_names_and_order_are_those_of_the_pipeline_file():
    """An output is added where two metrics have one name; a missing metric is NaN."""
    early, late = (
        Metric(class_name="AUC", output_name=name, lower_bound=0.5, config={"name": "same"}) for name in ("early", "late")
    )
    specs = tfx_pipeline.make_metrics_specs(
        {"Z": Metric(class_name="AUC", output_name="late", lower_bound=0.5), "a": early, "b": late}
    )
    keys = [Key("same", output_name="early"), Key("same", output_name="late"), Key("Z", output_name="late")]
    metrics, validation = metrics_for_slice_pb2.MetricsForSlice(), validation_result_pb2.ValidationResult()
    for key in keys[:2]:
        metrics.metric_keys_and_values.add(key=key.to_proto()).value.double_value.value = 0.25
    failures = validation.metric_validations_per_slice.add().failures
    for key in keys[1:]:
        failures.add(metric_key=key.to_proto())
    config = tfma.EvalConfig(model_specs=[tfma.ModelSpec()], metrics_specs=specs)
    made = evaluation.to_evaluation(config, [metrics], validation)
    assert {name: cell.failed for name, cell in made.overall.items()} == {"Z": True, "early.same": False, "late.same": True}
    assert list(made.overall) == ["Z", "early.same", "late.same"]
    assert math.isnan(made.overall["Z"].value)


def test_thresholds_on_metrics_with_weights():
    """In a config as TFMA stores it, where a module of metrics cannot be imported."""
    (spec,) = tfx_pipeline.make_metrics_specs({"AUC": Metric(module="not_here", lower_bound=0.8)})
    spec.model_names.append("")
    metrics = metrics_for_slice_pb2.MetricsForSlice()
    metrics.metric_keys_and_values.add(key=Key("AUC", example_weighted=True).to_proto()).value.double_value.value = 0.9
    config = tfma.EvalConfig(model_specs=[tfma.ModelSpec(example_weight_key="weight")], metrics_specs=[spec])
    made = evaluation.to_evaluation(config, [metrics], validation_result_pb2.ValidationResult())
    assert (made.thresholds, made.overall) == ({"AUC": ">= 0.8"}, {"AUC": Cell(0.9)})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change(absolute=-0.2), "change of at least -0.2"),
        (Change(relative=0.07, higher_is_better=False), "change of at most +7 %"),
        (Change(absolute=0.0, relative=-0.1), "change of at least +0 and -10 %"),
    ],
)
def test_thresholds_on_change(change, text):
    specs = tfx_pipeline.make_metrics_specs({"AUC": Metric(change=change)})
    config = tfma.EvalConfig(model_specs=[tfma.ModelSpec()], metrics_specs=specs)
    assert evaluation.to_evaluation(config, [], validation_result_pb2.ValidationResult()).thresholds == {"AUC": text}


@pytest.mark.parametrize(
    ("failed_on", "unmet_change", "text"),
    [
        ((), None, "met"),
        (("",), None, "not met"),
        (("",), -0.23, "not met: -0.23 from the blessed model's 0.95"),
        (("", "b=1"), -0.23, "not met: -0.23 from the blessed model's 0.95, also on 1 slice (b=1)"),
        (("d=1", "c=1", "b=1", "a=1"), None, "not met on 4 slices (a=1, b=1, c=1, ...)"),
    ],
)
def test_verdicts(failed_on, unmet_change, text):
    slices = [Slice(name, {"AUC": Cell(0.5, failed=True)}) for name in failed_on if name]
    overall = Slice("", {"AUC": Cell(0.72, failed="" in failed_on, unmet_change=unmet_change), "Count": Cell(9.0)})
    assert Evaluation((overall, *slices), {"AUC": ">= 0.8"}, blessed=False).describe_verdicts() == {"AUC": text}


def test_classification_metrics_are_those_of_kfp():
    """The pages read what kfp's own classes write."""
    plots = metrics_for_slice_pb2.PlotsForSlice()
    binary = plots.plot_keys_and_values.add().value.confusion_matrix_at_thresholds
    for threshold, values in ((-1e-7, (4, 0, 6, 0)), (0.5, (3, 5, 1, 1)), (1.0, (0, 6, 0, 4))):
        names = ("true_positives", "true_negatives", "false_positives", "false_negatives")
        binary.matrices.add(threshold=threshold, **dict(zip(names, values, strict=True)))
    values = [entry.value for entry in plots.plot_keys_and_values]
    made = Evaluation((), confusion=evaluation.to_confusion(values), roc=evaluation.to_roc(values))
    assert made.roc == ((0.5, 1 / 6, 0.75), (1.0, 0.0, 0.0))

    expected = dsl.ClassificationMetrics()
    expected.log_confusion_matrix(["negative", "positive"], [[5, 1], [1, 3]])
    expected.log_roc_curve([1 / 6, 0.0], [0.75, 0.0], [0.5, 1.0])
    assert artifact_types.to_classification_metrics(made) == expected.metadata

    several = plots.plot_keys_and_values.add().value.multi_class_confusion_matrix_at_thresholds.matrices.add(threshold=0.5)
    for actual, predicted, count in ((0, 0, 5), (1, 1, 6), (2, 1, 2)):
        several.entries.add(actual_class_id=actual, predicted_class_id=predicted, num_weighted_examples=count)
    values = [entry.value for entry in plots.plot_keys_and_values]
    assert evaluation.to_confusion(values) == (("0", "1", "2"), ((5, 0, 0), (0, 6, 0), (0, 2, 0)))


def test_only_finite_metrics_over_all_examples_are_stored():
    cells = {"AUC": Cell(0.5), "Loss": Cell(float("nan"))}
    made = Evaluation((Slice("", cells), Slice("hour=1", {"AUC": Cell(0.1)})))
    assert artifact_types.to_metrics(made) == {"AUC": 0.5}

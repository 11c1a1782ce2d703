"""Tests that only finite metrics meet thresholds, and only finite baselines count."""

import math
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from beam_arguments import IN_MEMORY
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as writer
from tf_examples import make_example, write_examples
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from tfx_distribute.components.evaluator import executor
from tfx_distribute.components.report import evaluation as report_evaluation
from tfx_distribute.components.report import thresholds
from tfx_distribute.pipelines.spec.pipeline import Change, Metric
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.pipelines.targets.local import results
from tfx_distribute.trainer_module.errors import ConfigurationError

NAN, INF = math.nan, math.inf
LOSS = "MeanSquaredError"
SMALL, LARGE = (("hour", 3),), (("hour", 4),)


def config(metric: Metric) -> tfma.EvalConfig:
    return tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key="y")],
        slicing_specs=[tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=["hour"])],
        metrics_specs=tfx_pipeline.make_metrics_specs({LOSS: metric}),
    )


def judge(metric: Metric, new: dict, baseline: dict | None = None, weights: dict = {}):  # noqa: B006
    """Judges a metric by its value on each slice, after TFMA has judged it."""
    updated = tfma.utils.update_eval_config_with_defaults(
        thresholds.add_total_weights(config(metric)), has_baseline=baseline is not None, rubber_stamp=True
    )
    slice_metrics, combine = [], writer.CombineValidations(updated, rubber_stamp=baseline is None)
    accumulator = combine.create_accumulator()
    for key in {**new, **(baseline or {})}:
        metrics = {}
        name = "" if baseline is None else "candidate"
        if (weight := weights.get(key, 1.0)) is not None:
            metrics[tfma.metrics.MetricKey(thresholds.TOTAL_WEIGHT, model_name=name, example_weighted=False)] = weight
        if new.get(key) is not None:
            metrics[tfma.metrics.MetricKey(LOSS, model_name=name, example_weighted=False)] = new[key]
        if baseline is not None:
            metrics[tfma.metrics.MetricKey(LOSS, model_name="baseline", example_weighted=False)] = baseline[key]
            diff = NAN if new.get(key) is None else new[key] - baseline[key]
            metrics[tfma.metrics.MetricKey(LOSS, model_name=name, is_diff=True, example_weighted=False)] = diff
        accumulator = combine.add_input(accumulator, metrics_validator.validate_metrics((key, metrics), updated))
        slice_metrics.append(writer.convert_slice_metrics_to_proto((key, metrics), ()))
    validation = combine.extract_output(accumulator)
    return thresholds.judge(config(metric), slice_metrics, validation, has_baseline=baseline is not None)


def failed_on(validation: tfma.ValidationResult) -> list[str]:
    assert validation.validation_ok == (not validation.metric_validations_per_slice)
    keys = (slicer_lib.deserialize_slice_key(each.slice_key) for each in validation.metric_validations_per_slice)
    return sorted(map(thresholds.slice_name, keys))


def messages(validation: tfma.ValidationResult) -> set[str]:
    return {failure.message for each in validation.metric_validations_per_slice for failure in each.failures}


LOWER = Metric(lower_bound=0.0)
UPPER = Metric(upper_bound=1.0)
NO_WORSE = Metric(change=Change(absolute=0.0, higher_is_better=False))
LESS = Metric(change=Change(absolute=-0.001, higher_is_better=False))
BETTER = Metric(change=Change(absolute=0.0))
RELATIVE = Metric(change=Change(relative=0.1))
RELATIVE_LOSS = Metric(change=Change(relative=-0.1, higher_is_better=False))
AT_MOST_5_PERCENT_LOWER = Metric(change=Change(relative=-0.05))
AT_MOST_5_PERCENT_HIGHER = Metric(change=Change(relative=0.05, higher_is_better=False))
BOTH = Metric(upper_bound=1.0, change=Change(absolute=0.0, higher_is_better=False))


@pytest.mark.parametrize("value", [NAN, INF, -INF, None])
@pytest.mark.parametrize("metric", [LOWER, UPPER, NO_WORSE, RELATIVE])
@pytest.mark.parametrize("baseline", [None, 0.5, NAN])
def test_metric_that_is_not_finite_meets_no_threshold(value, metric, baseline):
    validation, _ = judge(metric, {(): value}, None if baseline is None else {(): baseline})
    assert failed_on(validation) == [""]
    assert all("missing or not finite" in message for message in messages(validation))


@pytest.mark.parametrize("baseline", [NAN, INF, -INF])
@pytest.mark.parametrize(("metric", "value", "ok"), [(NO_WORSE, 0.5, True), (RELATIVE, 0.5, True), (BOTH, 1.5, False)])
def test_baseline_that_is_not_finite_is_ignored(metric, value, ok, baseline):
    validation, unusable_baseline = judge(metric, {(): value}, {(): baseline})
    assert (validation.validation_ok, unusable_baseline) == (ok, LOSS)
    assert ok is judge(metric, {(): value})[0].validation_ok, "as the first model"


@pytest.mark.parametrize(
    ("metric", "value", "baseline", "ok"),
    [
        (LOWER, 0.5, 0.5, True),
        (LOWER, -0.5, 0.5, False),
        (NO_WORSE, 0.5, 0.6, True),
        (NO_WORSE, 0.6, 0.5, False),
        (RELATIVE, 0.6, 0.5, True),
        (RELATIVE, 0.54, 0.5, False),
        (BOTH, 1.5, 1.6, False),
        # TFMA refuses any change relative to 0, so no model could replace the baseline.
        (RELATIVE, 0.5, 0.0, True),
        (RELATIVE, -0.5, 0.0, False),
        (RELATIVE_LOSS, 0.0, 0.0, True),
        (Metric(change=Change(absolute=0.2, relative=0.1)), 0.1, 0.0, False),
        (Metric(change=Change(absolute=0.2, relative=0.1)), 0.3, 0.0, True),
        # A change is relative to the magnitude.
        (AT_MOST_5_PERCENT_LOWER, -0.55, -0.5, False),
        (AT_MOST_5_PERCENT_LOWER, -0.52, -0.5, True),
        (AT_MOST_5_PERCENT_LOWER, -0.1, 0.5, False),
        (AT_MOST_5_PERCENT_HIGHER, -0.9, -1.0, False),
        (AT_MOST_5_PERCENT_HIGHER, -0.96, -1.0, True),
        (AT_MOST_5_PERCENT_HIGHER, -3.0, 1.0, True),
        (Metric(change=Change(absolute=0.2, relative=0.1)), -0.9, -1.0, False),
        (Metric(change=Change(absolute=0.2, relative=0.1)), -0.7, -1.0, True),
        (Metric(upper_bound=-0.8, change=Change(relative=0.1)), -0.7, -1.0, False),
    ],
)
def test_finite_metrics_are_compared(metric, value, baseline, ok):
    validation, unusable_baseline = judge(metric, {(): value}, {(): baseline})
    assert (validation.validation_ok, messages(validation) - {""}, unusable_baseline) == (ok, set(), "")
    on_slice, _ = judge(metric, {(): baseline + 0.2 * abs(baseline), SMALL: value}, {(): baseline, SMALL: baseline})
    assert ("hour=3" in failed_on(on_slice)) is not ok


def test_array_of_one_number_is_compared_as_a_number():
    validation, _ = judge(NO_WORSE, {(): np.array([0.6])}, {(): np.array([0.5])})
    assert (failed_on(validation), messages(validation)) == ([""], {""})
    assert judge(NO_WORSE, {(): np.array([0.4], np.float32)}, {(): np.array([0.5], np.float32)})[0].validation_ok


def test_slice_that_is_not_finite_fails_alone():
    for metric in (UPPER, NO_WORSE):  # also of the first model
        assert failed_on(judge(metric, {(): 0.5, SMALL: NAN, LARGE: 0.5})[0]) == ["hour=3"]


def test_baseline_that_is_not_finite_on_a_slice_still_counts_on_others():
    baseline = {(): 0.5, SMALL: NAN, LARGE: 0.5}
    better, unusable_baseline = judge(NO_WORSE, {(): 0.4, SMALL: 0.4, LARGE: 0.4}, baseline)
    assert (better.validation_ok, unusable_baseline) == (True, f"{LOSS} on hour=3")
    worse, _ = judge(NO_WORSE, {(): 0.4, SMALL: 0.9, LARGE: 0.9}, baseline)
    assert failed_on(worse) == ["hour=4"]
    broken, unusable_baseline = judge(NO_WORSE, {(): 0.9, SMALL: 0.9, LARGE: 0.9}, {(): NAN, SMALL: NAN, LARGE: 0.5})
    assert (broken.validation_ok, unusable_baseline) == (True, LOSS), "over all examples: not used at all"


@pytest.mark.parametrize("metric", [UPPER, NO_WORSE])
def test_no_examples_meet_no_threshold(metric):
    assert failed_on(judge(metric, {})[0]) == [""]


@pytest.mark.parametrize("weight", [0.0, -1.0, NAN])
@pytest.mark.parametrize(("metric", "baseline"), [(UPPER, None), (NO_WORSE, None), (NO_WORSE, {(): 0.5, SMALL: 0.5})])
def test_examples_without_weight_meet_no_threshold(metric, baseline, weight):
    values = {(): 0.0, SMALL: 0.0}
    assert judge(metric, values, baseline)[0].validation_ok
    assert failed_on(judge(metric, values, baseline, {(): weight})[0]) == [""]
    assert failed_on(judge(metric, values, baseline, {SMALL: weight})[0]) == ["hour=3"]


def test_only_metrics_that_were_asked_for_fail():
    """TFMA computes none for a slice that is smaller than min_slice_size."""
    validation, _ = judge(UPPER, {(): 0.5, SMALL: None}, weights={SMALL: None})
    (on_slice,) = validation.metric_validations_per_slice
    assert [failure.metric_key.name for failure in on_slice.failures] == [LOSS]


def test_total_weight_is_that_of_each_output():
    limit = {"metrics": [tfma.MetricConfig(class_name=LOSS, threshold=tfma.MetricThreshold(value_threshold={}))]}
    by_output = tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_keys={"a": "a", "b": "b"}, example_weight_keys={"a": "w", "b": "w"})],
        metrics_specs=[tfma.MetricsSpec(output_names=[name], **limit) for name in ("a", "b", "a")],
    )
    added = thresholds.add_total_weights(by_output).metrics_specs[3:]
    assert [(spec.output_names, spec.metrics[0].class_name) for spec in added] == [
        (["a"], "ExampleCount"),
        (["b"], "ExampleCount"),
    ]
    assert thresholds.add_total_weights(config(Metric())) == config(Metric()), "without thresholds, nothing is judged"


@pytest.mark.parametrize(("values", "ok"), [({}, False), ({SMALL: 0.5}, True), ({SMALL: NAN}, False)])
def test_evaluation_without_the_overall_slice(values, ok):
    eval_config = config(UPPER)
    del eval_config.slicing_specs[0]
    slice_metrics = [
        writer.convert_slice_metrics_to_proto((key, {tfma.metrics.MetricKey(LOSS): value}), ())
        for key, value in values.items()
    ]
    validation = tfma.ValidationResult(validation_ok=bool(values))  # as TFMA reports it without examples
    assert thresholds.judge(eval_config, slice_metrics, validation, has_baseline=False)[0].validation_ok is ok


@pytest.mark.parametrize(
    ("metric", "new", "baseline", "unusable"),
    [
        (UPPER, {(): NAN, SMALL: 0.9, LARGE: NAN}, None, ""),
        (NO_WORSE, {(): 0.4, SMALL: 0.9}, {(): NAN, SMALL: 0.4}, LOSS),
    ],
)
def test_threshold_on_one_slice_does_not_apply_to_others(monkeypatch, metric, new, baseline, unusable):
    only = config(metric)
    (limited,) = (each for each in only.metrics_specs[0].metrics if each.HasField("threshold"))
    hour_3 = tfma.SlicingSpec(feature_values={"hour": "3"})
    limited.per_slice_thresholds.add(slicing_specs=[hour_3], threshold=limited.threshold)
    limited.ClearField("threshold")
    monkeypatch.setitem(globals(), "config", lambda _: only)
    validation, unusable_baseline = judge(metric, new, baseline)
    assert (validation.validation_ok, unusable_baseline) == (True, unusable)


class Scaled(tf.Module):
    """Predicts a constant for each hour."""

    def __init__(self, per_hour: list[float], feature: str = "hour"):
        super().__init__()
        self.per_hour, self.feature = tf.constant(per_hour), feature

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, serialized):
        hour = tf.io.parse_example(serialized, {self.feature: tf.io.FixedLenFeature([], tf.int64)})[self.feature]
        return {"outputs": tf.gather(self.per_hour, hour)[:, None]}


def write_model(folder, module: Scaled, **signatures) -> standard_artifacts.Model:
    tf.saved_model.save(module, f"{folder}/Format-Serving", signatures={"serving_default": module.serve, **signatures})
    model = standard_artifacts.Model()
    model.uri, model.id = str(folder), 1
    return model


def run_executor(place, examples, eval_config, **models):
    """Runs the executor like TFX; returns evaluation and blessing."""
    given = standard_artifacts.Examples()
    given.uri, given.split_names = str(examples), '["eval"]'
    inputs = {"examples": [given], **{name: [model] for name, model in models.items()}}
    evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
    evaluation.uri, blessing.uri = str(place / "evaluation"), str(place / "blessing")
    context = executor.Executor.Context(beam_pipeline_args=IN_MEMORY, tmp_dir=str(place), unique_id="1")
    properties = {"eval_config": proto_utils.proto_to_json(eval_config), "example_splits": '["eval"]'}
    executor.Executor(context).Do(inputs, {"evaluation": [evaluation], "blessing": [blessing]}, properties)
    return evaluation, blessing


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("metric", "new", "baseline", "failed", "reason"),
    [
        (NO_WORSE, [NAN, NAN], [[0.5, 0.5]], ["", "hour=0", "hour=1"], ""),
        (NO_WORSE, [0.6, 0.6], [[NAN, NAN]], [], f"its {LOSS} is not finite"),
        (NO_WORSE, [0.6, 0.6], [[0.5, 0.5], "gone"], [], "cannot read these examples: Feature: gone (data type"),
        (LESS, [0.6, 0.6], None, [], "it is the new model itself, which was blessed before"),
    ],
)
def test_evaluated_models_are_blessed_or_not(tmp_path, caplog, metric, new, baseline, failed, reason):
    """Without a baseline, a model is compared with itself, and is not better."""
    (tmp_path / "Split-eval").mkdir()
    rows = [make_example(y=0.5, w=1.0 + number, hour=number % 2) for number in range(10)]
    write_examples(tmp_path / "Split-eval" / "examples", rows)
    model = write_model(tmp_path / "new", Scaled(new))
    other = write_model(tmp_path / "baseline", Scaled(*baseline)) if baseline else model
    eval_config = config(metric)
    eval_config.model_specs[0].MergeFrom(tfma.ModelSpec(signature_name="serving_default", example_weight_key="w"))
    evaluation, blessing = run_executor(tmp_path, tmp_path, eval_config, model=model, baseline_model=other)
    found = tfma.load_validation_result(evaluation.uri)
    assert (failed_on(found), found.validation_ok) == (failed, not failed)
    assert os.listdir(blessing.uri) == ["NOT_BLESSED" if failed else "BLESSED"]
    assert blessing.get_int_custom_property("blessed") == found.validation_ok
    unusable = blessing.get_string_custom_property(executor.UNUSABLE_BASELINE)
    assert reason in unusable if reason else unusable == ""
    assert (f"{LOSS} meets no threshold: The metric is missing or not finite" in caplog.text) == bool(failed)
    assert (f"The latest blessed model is not compared with: {unusable}" in caplog.text) == bool(reason)


class Companies(Scaled):
    """Has a transform that replaces the text of a company by its id."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def transform(self, serialized):
        specs = {"company": tf.io.FixedLenFeature([], tf.string), "hour": tf.io.FixedLenFeature([], tf.int64)}
        parsed = tf.io.parse_example(serialized, specs)
        ids = tf.where(parsed["company"] == "Yellow", tf.constant(3, tf.int64), 7)
        return {"company": ids[:, None], "hour": parsed["hour"][:, None] + 10}


@pytest.mark.e2e
def test_slices_have_texts_in_place_of_ids(tmp_path):
    (tmp_path / "Split-eval").mkdir()
    rows = [make_example(y=0.5, hour=number % 2, company="Yellow" if number < 2 else "Blue") for number in range(6)]
    write_examples(tmp_path / "Split-eval" / "examples", rows)
    module = Companies([0.5, 0.5])
    models = {name: write_model(tmp_path / name, module, transform_features=module.transform) for name in ("model", "other")}
    eval_config = config(NO_WORSE)
    spec = tfma.ModelSpec(signature_name="serving_default", preprocessing_function_names=["transform_features"])
    eval_config.model_specs[0].MergeFrom(spec)
    eval_config.slicing_specs[1].feature_keys[:] = ["company", "hour"]
    for number, baseline in enumerate(({}, {"baseline_model": models["other"]})):
        evaluation, _ = run_executor(tmp_path / str(number), tmp_path, eval_config, model=models["model"], **baseline)
        names = {slice_.name for slice_ in report_evaluation.read(evaluation.uri).slices}
        assert names == {"", *(f"company={name}, hour={hour}" for name in ("Yellow", "Blue") for hour in (10, 11))}
    eval_config.slicing_specs[1].feature_keys[1] = "huor"
    with pytest.raises(ConfigurationError, match="evaluate.slices: no evaluated example has 'company' and 'huor'"):
        run_executor(tmp_path / "refused", tmp_path, eval_config, model=models["model"])


@pytest.mark.e2e
def test_thresholds_on_one_class_and_on_the_top_k(tmp_path):
    rows = [(0, [0.6, 0.3, 0.1]), (1, [0.2, 0.7, 0.1]), (2, [0.5, 0.1, 0.4]), (1, [0.5, 0.4, 0.1])]
    write_examples(tmp_path / "examples", [make_example(y=label, p=probabilities) for label, probabilities in rows])
    cases = {  # name -> config, value, whether the bound is below the value
        "ExampleCount": ({}, 4.0, True),
        "Precision": ({"class_id": 0, "thresholds": 0.45}, 1 / 3, True),
        "PPV": ({"class_id": 0, "thresholds": 0.45}, 1 / 3, False),
        "Recall": ({"class_id": 1, "thresholds": [0.3]}, 1.0, True),
        "TPR": ({"top_k": 1}, 0.5, True),
        "TP": ({"top_k": 2}, 4.0, False),
        "BinaryAccuracy": ({"name": "mine", "class_id": 0}, 1.0, False),
    }
    metrics = {
        name: Metric(lower_bound=value - 0.01 if ok else value + 0.01, config=arguments)
        for name, (arguments, value, ok) in cases.items()
    }
    metrics["ConfusionMatrixPlot"] = Metric(config={"class_id": 1})
    eval_config = tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key="y", prediction_key="p")],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=tfx_pipeline.make_metrics_specs(metrics),
    )
    folder = str(tmp_path / "evaluation")
    tfma.run_model_analysis(eval_config=eval_config, data_location=str(tmp_path / "examples"), output_path=folder)
    validation, _ = thresholds.judge(
        eval_config, tfma.load_metrics(folder), tfma.load_validation_result(folder), has_baseline=False
    )
    assert messages(validation) == {""}
    evaluation = report_evaluation.read(folder)
    assert evaluation.confusion == (("negative", "positive"), ((2.0, 0.0), (1.0, 1.0)))
    found = {result.name: result for result in results.match_metrics(evaluation, metrics) if result.name in cases}
    assert {name: result.value for name, result in found.items()} == pytest.approx(
        {name: value for name, (_, value, _) in cases.items()}
    )
    assert {name: not result.failed_on for name, result in found.items()} == {name: ok for name, (_, _, ok) in cases.items()}


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (BETTER, {((), LOSS): -0.25, (SMALL, LOSS): -0.5}),
        (Metric(lower_bound=0.6), {((), LOSS): None, (SMALL, LOSS): None}),
        (Metric(lower_bound=0.6, change=Change(absolute=-1.0)), {((), LOSS): None, (SMALL, LOSS): None}),
        (NO_WORSE, {}),
    ],
)
def test_failures_have_the_difference_if_it_is_why(metric, expected):
    validation, _ = judge(metric, {(): 0.5, SMALL: 0.25}, {(): 0.75, SMALL: 0.75})
    found = {(on, key.name): change for (on, key), change in thresholds.read_failures(validation).items()}
    assert found == expected

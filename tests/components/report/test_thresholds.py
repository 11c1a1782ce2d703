"""Tests that only finite metrics meet thresholds, and only finite baselines count."""

import math
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from beam_arguments import IN_MEMORY
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as writer
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


def judge(metric: Metric, new: dict, baseline: dict | None = None, weights: dict = {}) -> thresholds.Verdict:  # noqa: B006
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


def failed_on(verdict: thresholds.Verdict) -> list[str]:
    slices = verdict.validation.metric_validations_per_slice
    return sorted(thresholds.slice_name(slicer_lib.deserialize_slice_key(on_slice.slice_key)) for on_slice in slices)


LOWER = Metric(lower_bound=0.0)
UPPER = Metric(upper_bound=1.0)
NO_WORSE = Metric(change=Change(absolute=0.0, higher_is_better=False))
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
    verdict = judge(metric, {(): value}, None if baseline is None else {(): baseline})
    assert not verdict.validation.validation_ok
    assert failed_on(verdict) == [""]
    assert verdict.unusable == (LOSS,)


@pytest.mark.parametrize("baseline", [NAN, INF, -INF])
@pytest.mark.parametrize(("metric", "value", "ok"), [(NO_WORSE, 0.5, True), (RELATIVE, 0.5, True), (BOTH, 1.5, False)])
def test_baseline_that_is_not_finite_is_ignored(metric, value, ok, baseline):
    verdict = judge(metric, {(): value}, {(): baseline})
    assert verdict.validation.validation_ok is ok
    assert verdict.unusable_baseline == LOSS
    assert ok is judge(metric, {(): value}).validation.validation_ok, "as the first model"


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
    verdict = judge(metric, {(): value}, {(): baseline})
    assert (verdict.validation.validation_ok, verdict.unusable, verdict.unusable_baseline) == (ok, (), "")
    on_slice = judge(metric, {(): baseline + 0.2 * abs(baseline), SMALL: value}, {(): baseline, SMALL: baseline})
    assert ("hour=3" in failed_on(on_slice)) is not ok


def test_array_of_one_number_is_compared_as_a_number():
    verdict = judge(NO_WORSE, {(): np.array([0.6])}, {(): np.array([0.5])})
    assert failed_on(verdict) == [""]
    assert not verdict.unusable
    assert judge(NO_WORSE, {(): np.array([0.4], np.float32)}, {(): np.array([0.5], np.float32)}).validation.validation_ok


def test_failed_change_is_reported_with_the_difference():
    verdict = judge(AT_MOST_5_PERCENT_LOWER, {(): -2.0}, {(): -0.5})
    (found,) = verdict.validation.metric_validations_per_slice
    (failure,) = found.failures
    assert failure.metric_key.name == LOSS
    assert failure.metric_key.is_diff
    assert failure.metric_value.double_value.value == -1.5
    assert failure.metric_threshold.change_threshold.relative.value == -0.05
    assert not failure.message


def test_slice_that_is_not_finite_fails_alone():
    verdict = judge(UPPER, {(): 0.5, SMALL: NAN, LARGE: 0.5})
    assert failed_on(verdict) == ["hour=3"]
    assert verdict.unusable == (f"{LOSS} on hour=3",)
    assert failed_on(judge(NO_WORSE, {(): 0.5, SMALL: NAN, LARGE: 0.5})) == ["hour=3"], "of the first model too"


def test_baseline_that_is_not_finite_on_a_slice_still_counts_on_others():
    baseline = {(): 0.5, SMALL: NAN, LARGE: 0.5}
    better = judge(NO_WORSE, {(): 0.4, SMALL: 0.4, LARGE: 0.4}, baseline)
    assert better.validation.validation_ok
    assert better.unusable_baseline == f"{LOSS} on hour=3"
    worse = judge(NO_WORSE, {(): 0.4, SMALL: 0.9, LARGE: 0.9}, baseline)
    assert failed_on(worse) == ["hour=4"]
    broken = judge(NO_WORSE, {(): 0.9, SMALL: 0.9, LARGE: 0.9}, {(): NAN, SMALL: NAN, LARGE: 0.5})
    assert broken.validation.validation_ok, "over all examples: not used at all"
    assert broken.unusable_baseline == LOSS


@pytest.mark.parametrize("metric", [UPPER, NO_WORSE])
def test_no_examples_meet_no_threshold(metric):
    verdict = judge(metric, {})
    assert not verdict.validation.validation_ok
    assert failed_on(verdict) == [""]


@pytest.mark.parametrize("weight", [0.0, -1.0, NAN])
@pytest.mark.parametrize(("metric", "baseline"), [(UPPER, None), (NO_WORSE, None), (NO_WORSE, {(): 0.5, SMALL: 0.5})])
def test_examples_without_weight_meet_no_threshold(metric, baseline, weight):
    values = {(): 0.0, SMALL: 0.0}
    assert judge(metric, values, baseline).validation.validation_ok
    overall = judge(metric, values, baseline, {(): weight})
    assert (failed_on(overall), len(overall.unusable)) == ([""], 1)
    on_slice = judge(metric, values, baseline, {SMALL: weight})
    assert (failed_on(on_slice), len(on_slice.unusable)) == (["hour=3"], 1)


def test_only_metrics_that_were_asked_for_fail():
    """TFMA computes none for a slice that is smaller than min_slice_size."""
    verdict = judge(UPPER, {(): 0.5, SMALL: None}, weights={SMALL: None})
    (on_slice,) = verdict.validation.metric_validations_per_slice
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
    assert thresholds.judge(eval_config, slice_metrics, validation, has_baseline=False).validation.validation_ok is ok


def test_threshold_on_one_slice_does_not_apply_to_others():
    limit = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(upper_bound={"value": 1.0}))
    only = config_pb2.PerSliceMetricThreshold(
        slicing_specs=[tfma.SlicingSpec(feature_values={"hour": "4"})], threshold=limit
    )
    spec = tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name=LOSS, per_slice_thresholds=[only])])
    eval_config = config(UPPER)
    del eval_config.metrics_specs[:]
    eval_config.metrics_specs.append(spec)
    values = {(): NAN, SMALL: NAN, LARGE: 0.5}
    slice_metrics = [
        writer.convert_slice_metrics_to_proto((key, {tfma.metrics.MetricKey("mean_squared_error"): value}), ())
        for key, value in values.items()
    ]
    good = tfma.ValidationResult(validation_ok=True)
    assert thresholds.judge(eval_config, slice_metrics, good, has_baseline=False).validation.validation_ok


class Scaled(tf.Module):
    """Predicts a constant for each hour."""

    def __init__(self, per_hour: list[float], feature: str):
        super().__init__()
        self.per_hour, self.feature = tf.constant(per_hour), feature

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, serialized):
        hour = tf.io.parse_example(serialized, {self.feature: tf.io.FixedLenFeature([], tf.int64)})[self.feature]
        return {"outputs": tf.gather(self.per_hour, hour)[:, None]}


def write_model(folder, per_hour: list[float], feature: str = "hour") -> standard_artifacts.Model:
    module = Scaled(per_hour, feature)
    tf.saved_model.save(module, f"{folder}/Format-Serving", signatures={"serving_default": module.serve})
    model = standard_artifacts.Model()
    model.uri, model.id = str(folder), 1
    return model


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory):
    """Runs the executor like TFX, on ten examples with label 0.5 and hour 0 or 1."""
    folder = tmp_path_factory.mktemp("evaluator")
    (folder / "Split-eval").mkdir()
    with tf.io.TFRecordWriter(str(folder / "Split-eval" / "examples")) as writer:
        for number in range(10):
            values = {"y": [0.5], "w": [1.0 + number]}
            features = {name: tf.train.Feature(float_list=tf.train.FloatList(value=value)) for name, value in values.items()}
            features["hour"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2]))
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = str(folder), '["eval"]'

    def run(
        metric: Metric, new: list[float], baseline: list[float] | None = None, feature: str = "hour", again: bool = False
    ):
        place = tmp_path_factory.mktemp("evaluation")
        inputs = {"examples": [examples], "model": [write_model(place / "new", new)]}
        if baseline is not None:
            inputs["baseline_model"] = [write_model(place / "baseline", baseline, feature)]
        if again:  # the run after one that has blessed the model
            inputs["baseline_model"] = inputs["model"]
        evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
        evaluation.uri, blessing.uri = str(place / "evaluation"), str(place / "blessing")
        eval_config = config(metric)
        eval_config.model_specs[0].MergeFrom(tfma.ModelSpec(signature_name="serving_default", example_weight_key="w"))
        context = executor.Executor.Context(beam_pipeline_args=IN_MEMORY, tmp_dir=str(place), unique_id="1")
        properties = {"eval_config": proto_utils.proto_to_json(eval_config), "example_splits": '["eval"]'}
        executor.Executor(context).Do(inputs, {"evaluation": [evaluation], "blessing": [blessing]}, properties)
        (name,) = os.listdir(blessing.uri)
        assert name == ("BLESSED" if blessing.get_int_custom_property("blessed") else "NOT_BLESSED")
        found = tfma.load_validation_result(evaluation.uri)
        assert found.validation_ok == (name == "BLESSED")
        return name, failed_on(thresholds.Verdict(found)), blessing.get_string_custom_property(executor.UNUSABLE_BASELINE)

    return run


@pytest.mark.e2e
def test_evaluated_models_are_blessed_or_not(evaluate, caplog):
    assert evaluate(NO_WORSE, [NAN, NAN], [0.5, 0.5]) == ("NOT_BLESSED", ["", "hour=0", "hour=1"], "")
    assert f"{LOSS} of the new model meets no threshold" in caplog.text
    caplog.clear()
    reason = f"its {LOSS} is not finite"
    assert evaluate(NO_WORSE, [0.6, 0.6], [NAN, NAN]) == ("BLESSED", [], reason)
    assert "of the new model meets no threshold" not in caplog.text
    assert f"The latest blessed model is not compared with: {reason}" in caplog.text


@pytest.mark.e2e
def test_baseline_that_cannot_read_the_examples_is_ignored(evaluate, caplog):
    name, failed, reason = evaluate(NO_WORSE, [0.6, 0.6], [0.5, 0.5], feature="removed")
    assert (name, failed) == ("BLESSED", [])
    assert "cannot read these examples: Feature: removed (data type: int64) is required" in reason
    assert f"The latest blessed model is not compared with: {reason}" in caplog.text


@pytest.mark.e2e
def test_blessed_model_that_was_not_pushed_is_blessed_again(evaluate):
    """No model is better than itself."""
    better = Metric(change=Change(absolute=-0.001, higher_is_better=False))
    reason = "it is the new model itself, which was blessed before"
    assert evaluate(better, [0.6, 0.6], again=True) == ("BLESSED", [], reason)


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
    with tf.io.TFRecordWriter(str(tmp_path / "Split-eval" / "examples")) as writer:
        for number in range(6):
            features = {
                "y": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5])),
                "hour": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2])),
                "company": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"Yellow" if number < 2 else b"Blue"])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    models = []
    for name in ("new", "baseline"):
        module = Companies([0.5, 0.5], "hour")
        signatures = {"serving_default": module.serve, "transform_features": module.transform}
        tf.saved_model.save(module, str(tmp_path / name / "Format-Serving"), signatures=signatures)
        model = standard_artifacts.Model()
        model.uri, model.id = str(tmp_path / name), 1
        models.append(model)
    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = str(tmp_path), '["eval"]'
    for inputs in ({"model": models[:1]}, {"model": models[:1], "baseline_model": models[1:]}):
        eval_config = config(NO_WORSE)
        spec = tfma.ModelSpec(signature_name="serving_default", preprocessing_function_names=["transform_features"])
        eval_config.model_specs[0].MergeFrom(spec)
        del eval_config.slicing_specs[:]
        eval_config.slicing_specs.extend([tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=["company", "hour"])])
        evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
        place = tmp_path / f"{len(inputs)} models"
        evaluation.uri, blessing.uri = str(place / "evaluation"), str(place / "blessing")
        context = executor.Executor.Context(beam_pipeline_args=IN_MEMORY, tmp_dir=str(place), unique_id="1")
        properties = {"eval_config": proto_utils.proto_to_json(eval_config), "example_splits": '["eval"]'}
        outputs = {"evaluation": [evaluation], "blessing": [blessing]}
        executor.Executor(context).Do({"examples": [examples], **inputs}, outputs, properties)
        names = {slice_.name for slice_ in report_evaluation.read(evaluation.uri).slices}
        assert names == {"", *(f"company={name}, hour={hour}" for name in ("Yellow", "Blue") for hour in (10, 11))}
    properties["eval_config"] = properties["eval_config"].replace('"hour"', '"huor"')
    with pytest.raises(ConfigurationError, match="evaluate.slices: no evaluated example has 'company' and 'huor'"):
        executor.Executor(context).Do({"examples": [examples], **inputs}, outputs, properties)


@pytest.mark.e2e
def test_thresholds_on_one_class_and_on_the_top_k(tmp_path):
    rows = [(0, [0.6, 0.3, 0.1]), (1, [0.2, 0.7, 0.1]), (2, [0.5, 0.1, 0.4]), (1, [0.5, 0.4, 0.1])]
    with tf.io.TFRecordWriter(str(tmp_path / "examples")) as writer:
        for label, probabilities in rows:
            features = {
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                "p": tf.train.Feature(float_list=tf.train.FloatList(value=probabilities)),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
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
    eval_config = tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key="y", prediction_key="p")],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=tfx_pipeline.make_metrics_specs(metrics),
    )
    folder = str(tmp_path / "evaluation")
    tfma.run_model_analysis(eval_config=eval_config, data_location=str(tmp_path / "examples"), output_path=folder)
    verdict = thresholds.judge(
        eval_config, tfma.load_metrics(folder), tfma.load_validation_result(folder), has_baseline=False
    )
    assert verdict.unusable == ()
    found = {result.name: result for result in results.match_metrics(report_evaluation.read(folder), metrics)}
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
    verdict = judge(metric, {(): 0.5, SMALL: 0.25}, {(): 0.75, SMALL: 0.75})
    found = {(on, key.name): change for (on, key), change in thresholds.read_failures(verdict.validation).items()}
    assert found == expected

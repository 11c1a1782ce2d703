"""Compares metrics that are computed a batch at a time with TFMA's own."""

import contextlib
import json
import re
from unittest import mock

import apache_beam as beam
import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from absl import logging
from beam_arguments import IN_MEMORY
from google.protobuf import json_format
from tensorflow_model_analysis.api import types as tfma_types
from tensorflow_model_analysis.metrics import metric_types
from tfx import types  # noqa: F401 (TFMA 0.52 has an EvalConfig only once TFX is imported)

from tfx_distribute.components.evaluator import batches, extractors
from tfx_distribute.components.report import thresholds

# TFMA's own, a quarter of a million in these tests.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Conversion of an array with ndim:DeprecationWarning", "ignore::RuntimeWarning:tensorflow_model_analysis"
)

BINARY = (
    "AUC", "AUCPrecisionRecall", "BinaryAccuracy", "Precision", "Recall", "F1Score", "TruePositives", "FalsePositives",
    "TrueNegatives", "FalseNegatives", "BinaryCrossentropy", "Calibration", "MeanLabel", "MeanPrediction", "ExampleCount",
    "WeightedExampleCount", "MeanSquaredError",
)  # fmt: skip
REGRESSION = (
    "MeanAbsoluteError", "MeanSquaredError", "RootMeanSquaredError", "MeanAbsolutePercentageError",
    "MeanSquaredLogarithmicError", "MeanLabel", "MeanPrediction", "Calibration", "ExampleCount",
)  # fmt: skip
CLASSES = ("MultiClassConfusionMatrixPlot", "ExampleCount", "AUC")


class OwnCount(metric_types.Metric):
    """Counts examples whose feature `a` is 1; TFMA calls it for each of them."""

    def __init__(self, name: str = "own_count"):
        super().__init__(_count_ones, name=name)


def _count_ones(name, model_names=None, example_weighted=False, **kwargs):
    (model_name,) = model_names
    key = tfma.metrics.MetricKey(name=name, model_name=model_name, example_weighted=example_weighted)
    return [tfma.metrics.MetricComputation([key], [tfma.metrics.FeaturePreprocessor(["a"])], _CountOnes(key))]


class _CountOnes(beam.CombineFn):
    def __init__(self, key):
        self._key = key

    def create_accumulator(self):
        return 0

    def add_input(self, accumulator, inputs):
        assert set(inputs) == {"labels", "predictions", "example_weights", "features"}
        return accumulator + int(inputs.features["a"][0] == 1)

    def merge_accumulators(self, accumulators):
        return sum(accumulators)

    def extract_output(self, accumulator):
        return {self._key: accumulator}


SLICES = [
    {"feature_keys": ["a"]},
    {"feature_keys": ["a", "b"]},
    {"feature_keys": ["several"]},
    {"feature_keys": ["missing"]},
    {"feature_keys": ["b"], "feature_values": {"a": "2"}},
    {"feature_values": {"a": "9"}},
]


def make_config(metrics_specs, slices=SLICES, models=("",), options=None, **model_settings) -> tfma.EvalConfig:
    """Makes an evaluation.

    The metrics of a specification are classes' names, or fields of a MetricConfig.
    """
    specs = [
        {
            **spec,
            "metrics": [{"class_name": metric} if isinstance(metric, str) else metric for metric in spec["metrics"]],
            **({"model_names": list(models)} if len(models) > 1 else {}),
        }
        for spec in metrics_specs
    ]
    model_settings = {"model_type": "tf_generic", **model_settings}
    document = {
        "model_specs": [{"name": name, "is_baseline": name == "baseline", **model_settings} for name in models],
        "metrics_specs": specs,
        "slicing_specs": [{}, *slices],
        "options": options,
    }
    return json_format.ParseDict(document, tfma.EvalConfig())


def make_batches(kinds, is_weighted=True, sizes=(5, 8, 1)):
    """Makes extracts as TFMA does, with an output of the model for each kind."""
    random = np.random.default_rng(3)
    for size in sizes:
        outputs = {kind: make_outputs(random, kind, size) for kind in kinds}
        weights = {kind: random.uniform(0, 2, (size, 1)).astype(np.float32) for kind in kinds[::2]}
        extracts = {
            "labels": {kind: label for kind, (label, _) in outputs.items()},
            "predictions": {kind: prediction for kind, (_, prediction) in outputs.items()},
            "example_weights": weights if is_weighted else None,
        }
        if len(kinds) == 1:
            extracts = {key: values and values[kinds[0]] for key, values in extracts.items()}
        yield {
            **extracts,
            "features": {
                "a": random.integers(0, 3, (size, 1)),
                "b": random.choice([b"x", b"y", "é".encode()], (size, 1)).astype(object),
                "several": make_ragged(random, size),
                "unsliced": random.normal(size=(size, 2)),
            },
            "transformed_features": {"b": random.integers(0, 3, (size, 1))},
        }


def make_outputs(random, kind, size):
    prediction = random.uniform(0, 1, (size, 1)).astype(np.float32)
    match kind:
        case "binary":
            return random.integers(0, 2, (size, 1)), prediction
        case "edges":  # buckets' borders, and beyond them
            return random.integers(0, 2, size), random.choice([0, 1e-8, 1e-4, 0.3, 0.5, 0.9999, 1, 1.5, -2], size)
        case "fractions":
            return random.uniform(0, 1, (size, 1)).astype(np.float32), prediction
        case "regression":
            return random.integers(0, 5, (size, 1)).astype(np.float32), 5 * prediction
        case "sparse":
            return random.integers(0, 4, (size, 1)), random.dirichlet(np.ones(4), size).astype(np.float32)
        case "dense":
            return np.eye(4)[random.integers(0, 4, size)], random.dirichlet(np.ones(4), size).astype(np.float32)
        case "texts":
            classes = np.array([b"u", b"v", b"w"], object)
            scores = random.dirichlet(np.ones(3), size)
            return random.choice(classes, (size, 1)), {"probabilities": scores, "all_classes": np.tile(classes, (size, 1))}
    raise ValueError(kind)


def make_ragged(random, size):
    """No, one or several values for each example."""
    lengths = random.integers(0, 3, size)
    indices = np.array([(row, column) for row, length in enumerate(lengths) for column in range(length)]).reshape(-1, 2)
    values = random.choice([b"p", b"q"], len(indices)).astype(object)
    return tfma_types.VarLenTensorValue(values=values, indices=indices, dense_shape=np.array([size, max(lengths)]))


def evaluate(config, inputs, folder, in_batches):
    """Returns what TFMA writes: metrics and plots by slice and key, and validation."""
    # Those after the predictions, which the inputs have already.
    last = {"ExtractUnbatchedInputs", "TextsOfSlices", "ExtractSliceKeys"}
    models = [tfma.EvalSharedModel(model_name=spec.name, model_type="tf_generic") for spec in config.model_specs]
    with mock.patch.object(batches, "can_batch", return_value=in_batches):
        chosen = [stage for stage in extractors.custom_extractors(models, config, None) if stage.stage_name in last]
    with batches.computing() if in_batches else contextlib.nullcontext(), beam.Pipeline(argv=IN_MEMORY) as pipeline:
        examples = pipeline | beam.Create(list(inputs), reshuffle=False)
        _ = examples | tfma.ExtractEvaluateAndWriteResults(
            eval_shared_model=models,
            eval_config=config,
            extractors=chosen,
            output_path=str(folder),
        )
    metrics, plots = (
        {
            (str(on_slice.slice_key), str(entry.key)): json_format.MessageToDict(entry.value)
            for on_slice in load(str(folder))
            for entry in getattr(on_slice, entries)
        }
        for load, entries in ((tfma.load_metrics, "metric_keys_and_values"), (tfma.load_plots, "plot_keys_and_values"))
    )
    validation = json_format.MessageToDict(tfma.load_validation_result(str(folder)))
    return {"metrics": metrics, "plots": plots, "validation": validation}


def flatten(value, to_leaf, path=()):
    """Returns path -> value of all leaves of a document."""
    if not isinstance(value, dict | list):
        return {path: to_leaf(value)}
    children = value.items() if isinstance(value, dict) else enumerate(sorted(value, key=name_slice))
    return {place: leaf for key, child in children for place, leaf in flatten(child, to_leaf, (*path, key)).items()}


def name_slice(value):
    """Returns a sort key for failures on slices, which TFMA writes in any order."""
    return json.dumps(value["sliceKey"], sort_keys=True) if isinstance(value, dict) and "sliceKey" in value else ""


def as_number(value):
    """Returns the number of a text, such as a proto's int64 or NaN; or the text."""
    with contextlib.suppress(ValueError):
        return float(value)
    return value


def as_approximate_number(value):
    number = as_number(value)  # Keras adds up in float32
    return pytest.approx(number, rel=1e-6, abs=1e-6, nan_ok=True) if isinstance(number, float) else number


def compare(tmp_path, config, inputs):
    inputs = list(inputs)
    expected = evaluate(config, inputs, tmp_path / "tfma", in_batches=False)
    assert batches.can_batch(config)
    assert expected["metrics"]
    actual = evaluate(config, inputs, tmp_path / "batches", in_batches=True)
    assert flatten(actual, as_number) == flatten(expected, as_approximate_number)
    return actual


def keys(kind, outputs):
    """Returns the settings for labels or weights of a model with these outputs."""
    return {f"{kind}_keys": {name: name for name in outputs}}


KINDS = {
    "binary": [*BINARY, "ConfusionMatrixPlot", "CalibrationPlot"],
    "edges": BINARY,
    "fractions": BINARY,
    "regression": REGRESSION,
    "sparse": ["SparseCategoricalAccuracy", "SparseCategoricalCrossentropy", *CLASSES],
    "dense": ["CategoricalAccuracy", "CategoricalCrossentropy", *CLASSES],
    "texts": ["SparseCategoricalAccuracy", "ExampleCount"],
}


@pytest.mark.parametrize("outputs", [[*KINDS][:-1], ["texts", "dense"]], ids=["numbers", "texts"])
def test_metrics_are_those_of_tfma(tmp_path, outputs):
    """With labels that are texts, all metrics get single examples."""
    specs = [{"metrics": KINDS[kind], "output_names": [kind]} for kind in outputs]
    labels, weights = keys("label", outputs), keys("example_weight", outputs[::2])  # the others without
    config = make_config(specs, [{"feature_values": {"a": "2"}}], **labels, **weights)
    result = compare(tmp_path, config, make_batches(outputs))
    assert {key for key, _ in result["metrics"]} == {key for key, _ in result["plots"]}
    assert len({key for key, _ in result["metrics"]}) == 2


def test_slices_are_those_of_tfma(tmp_path):
    metrics = ["ExampleCount", "WeightedExampleCount", "BinaryAccuracy", "CalibrationPlot"]
    config = make_config([{"metrics": metrics}], example_weight_key="weight")
    result = compare(tmp_path, config, make_batches(["binary"]))
    assert result["plots"]
    features = re.findall(r'column: "(\w+)"', " ".join(key for key, _ in result["metrics"]))
    assert set(features) == {"a", "b", "several"}


def test_classes_are_those_of_tfma(tmp_path):
    metrics = {"metrics": ["AUC", "Precision", "Recall", "MeanPrediction", "ExampleCount"]}
    kinds = ["sparse", "dense"]
    specs = [
        {**metrics, "binarize": {"class_ids": {"values": [0, 2]}}},
        {"metrics": ["Precision", "Recall"], "binarize": {"top_k_list": {"values": [2]}, "k_list": {"values": [1]}}},
        {**metrics, "aggregate": {"micro_average": True}},
        {"metrics": ["AUC"], "aggregate": {"macro_average": True, "class_weights": {"0": 1.0, "1": 2.0}}},
    ]
    by_kind = [{**spec, "output_names": [kind]} for spec in specs for kind in kinds]
    config = make_config(by_kind, SLICES[:1], **keys("label", kinds), **keys("example_weight", kinds[:1]))
    compare(tmp_path, config, make_batches(kinds))


def test_changes_against_a_baseline_and_thresholds(tmp_path):
    def two_models(extracts):
        other = np.clip(extracts["predictions"] + 0.1, 0, 1)
        features = extracts["transformed_features"]
        return {
            **extracts,
            "predictions": {"candidate": extracts["predictions"], "baseline": other},
            "transformed_features": {"candidate": features, "baseline": {}},
        }

    change = {"absolute": -0.01, "direction": "HIGHER_IS_BETTER"}
    limits = {"value_threshold": {"lower_bound": 0.5}, "change_threshold": change}
    on_slices = {"slicing_specs": [{"feature_keys": ["b"]}], "threshold": {"value_threshold": {"lower_bound": 0.55}}}
    metrics = [
        {"class_name": "AUC", "threshold": limits},
        {"class_name": "BinaryAccuracy", "per_slice_thresholds": [on_slices]},
        "BinaryCrossentropy",
        "MeanPrediction",
        "ExampleCount",
    ]
    slices = [{"feature_keys": ["b"]}]
    config = make_config([{"metrics": metrics}], slices, ("candidate", "baseline"), example_weight_key="weight")
    result = compare(tmp_path, thresholds.add_total_weights(config), map(two_models, make_batches(["binary"])))
    assert any("is_diff: true" in metric for _, metric in result["metrics"])
    assert result["validation"]["metricValidationsPerSlice"]


def test_other_metrics_get_single_examples(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda text, *values: lines.append(text % values))
    metrics = [
        {"class_name": "Precision", "config": json.dumps({"thresholds": [0.7, 0.2], "name": "p"})},
        {"class_name": "AUC", "config": json.dumps({"num_thresholds": 50})},
        {"class_name": "ConfusionMatrixAtThresholds", "config": json.dumps({"thresholds": [0.25, 0.5]})},
        {"class_name": "OwnCount", "module": __name__},
        "BinaryCrossEntropy",
        "SquaredPearsonCorrelation",
    ]
    # A slice with a given value is one of the numbers that the transform made.
    compare(tmp_path, make_config([{"metrics": metrics}], [{"feature_values": {"b": "1"}}]), make_batches(["binary"], False))
    slow = [line for line in lines if line.startswith("Computed one example at a time")]
    assert slow == ["Computed one example at a time: binary_crossentropy, own_count, squared_pearson_correlation"]


def test_tfma_says_what_is_wrong_with_a_label(tmp_path):
    (batch,) = make_batches(["binary"], sizes=(3,))
    with pytest.raises(RuntimeError, match="add_input failed") as failure:
        evaluate(
            make_config([{"metrics": ["AUC"]}], []), [{**batch, "labels": batch["labels"] + 2}], tmp_path, in_batches=True
        )
    assert "label must be within [0, 1]" in str(failure.getrepr(chain=True))


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"compute_confidence_intervals": True}},
        {"options": {"min_slice_size": 2}},
        {"model_type": "tf_keras"},
        {"model_type": ""},
        {"model_type": "tf_lite"},
        {"signature_name": "eval"},
    ],
)
def test_some_evaluations_need_single_examples(change):
    assert batches.can_batch(make_config([{"metrics": ["AUC"]}]))
    assert batches.can_batch(make_config([{"metrics": ["AUC"]}], model_type="", options={"include_default_metrics": False}))
    assert not batches.can_batch(make_config([{"metrics": ["AUC"]}], **change))

"""Calls signatures of baselines on examples that they can and cannot read."""

import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tf_examples import make_example
from tfx import types  # noqa: F401 (TFMA 0.52 has an EvalConfig only once TFX is imported)

from tfx_distribute.components.evaluator import baseline

SPEC = tfma.ModelSpec(signature_name="serving_default", preprocessing_function_names=["transform_features"])


class Model(tf.Module):
    """Reads an integer `a` in predictions, and a label `y` besides in the transform."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples):
        return {"outputs": tf.io.parse_example(examples, {"a": tf.io.FixedLenFeature([], tf.int64)})["a"]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples):
        return tf.io.parse_example(examples, {name: tf.io.FixedLenFeature([], tf.int64) for name in ("a", "y")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    model, folder = Model(), str(tmp_path_factory.mktemp("model"))
    tf.saved_model.save(model, folder, {"serving_default": model.serve, "transform_features": model.transform})
    return folder


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ({"a": 1, "y": 1}, ""),
        ({"a": 1, "y": 1, "new": 0.5}, ""),
        ({"y": 1}, "Feature: a (data type: int64) is required but could not be found"),
        ({"a": 0.5, "y": 1}, "Key: a, Index: 0.  Data types don't match"),
        ({"a": 1, "target": 1}, "Feature: y (data type: int64) is required but could not be found"),
    ],
)
def test_baseline_reads_the_examples_or_says_why_not(folder, features, reason):
    problem = baseline.find_problem(folder, SPEC, [make_example(**features)] * 3, folder)
    assert problem.startswith(f"{folder} cannot read these examples: {reason}") if reason else problem == ""


def test_only_signatures_of_the_evaluation_are_called(folder):
    only = tfma.ModelSpec(signature_name="serving_default")
    assert baseline.find_problem(folder, only, [make_example(a=1, target=1)], folder) == ""
    other = tfma.ModelSpec(signature_name="serving_default", preprocessing_function_names=["other"])
    assert baseline.find_problem(folder, other, [make_example(a=1, y=1)], folder) == f"{folder} has no signature 'other'"
    assert baseline.find_problem(f"{folder}/lite", only, [make_example(a=1)], folder) == ""


def test_labels_of_a_baseline_are_not_those_of_the_new_model(folder, tmp_path):
    """TFMA would compare predictions of the new model with labels of the baseline."""
    model, decoding = Model(), str(tmp_path)
    tf.saved_model.save(model, decoding, {"serving_default": model.serve, "transformed_labels": model.transform})
    spec = tfma.ModelSpec(signature_name="serving_default")
    assert "decode_features" in baseline.find_problem(decoding, spec, [make_example(a=1, y=1)], folder)
    for old, new in ((decoding, decoding), (folder, decoding)):
        assert baseline.find_problem(old, spec, [make_example(a=1, y=1)], new) == ""
    assert "Feature: y" in baseline.find_problem(decoding, spec, [make_example(a=1)], decoding)

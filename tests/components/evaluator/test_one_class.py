"""Tests which metrics count several classes as one, and that this is said."""

import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tfx import types  # noqa: F401 (TFMA 0.52 has an EvalConfig only once TFX is imported)

from tfx_distribute.components.evaluator import one_class
from tfx_distribute.pipelines.spec.pipeline import Metric
from tfx_distribute.pipelines.targets import tfx_pipeline


class Model(tf.Module):
    """Has an output with two numbers for each example, and others with one."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def several(self, examples):
        zeros = tf.zeros_like(tf.strings.length(examples), tf.float32)
        return {"probabilities": tf.stack([zeros, zeros], 1), "class": examples, "chance": zeros[:, tf.newaxis]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def alone(self, examples):
        return {"outputs": self.several(examples)["probabilities"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    model, folder = Model(), str(tmp_path_factory.mktemp("model"))
    tf.saved_model.save(model, folder, {"serving_default": model.several, "alone": model.alone})
    return folder


@pytest.mark.parametrize(
    ("name", "config", "output", "warns"),
    [
        ("Recall", {}, "probabilities", True),
        ("Recall", {"class_id": 1}, "probabilities", False),
        ("Recall", {"top_k": 1}, "probabilities", False),
        ("Recall", {}, "chance", False),
        ("Recall", {}, "class", False),
        ("Recall", {}, "", True),
        ("ConfusionMatrixPlot", {}, "probabilities", True),
        ("ConfusionMatrixPlot", {"class_id": 1}, "probabilities", False),
        ("MultiClassConfusionMatrixPlot", {}, "probabilities", False),
        ("SparseCategoricalAccuracy", {}, "probabilities", False),
        ("ExampleCount", {}, "probabilities", False),
    ],
)
@pytest.mark.parametrize("bound", [None, 0.5])
def test_metrics_of_one_class(folder, name, config, output, warns, bound):
    metric = Metric.model_construct(config=config, lower_bound=bound, output_name=output or None)
    spec = tfma.ModelSpec(signature_name="serving_default" if output else "alone")
    specs = tfx_pipeline.make_metrics_specs({name: metric})
    warnings = list(one_class.find_warnings(tfma.EvalConfig(model_specs=[spec], metrics_specs=specs), folder))
    expected = f"evaluate.metrics.{name}: counts each of the model's 2 outputs for an example as an example of its own; "
    assert warnings == [expected + "for one class, write config: {class_id: 1}"] * warns


def test_models_without_such_a_signature(folder, tmp_path):
    specs = tfx_pipeline.make_metrics_specs({"Recall": Metric()})
    for model, signature in ((folder, "another"), (str(tmp_path), "serving_default")):
        config = tfma.EvalConfig(model_specs=[tfma.ModelSpec(signature_name=signature)], metrics_specs=specs)
        assert list(one_class.find_warnings(config, model)) == []

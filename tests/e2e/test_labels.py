"""Runs a pipeline with two labels, weights, and a metric of the module's own."""

import shutil

import pytest
import tensorflow as tf
from tf_examples import make_example

pytestmark = pytest.mark.e2e

PIPELINE = """
name: two-labels
module: model.py
data:
  example_gen: digits_data.DigitsExampleGen
  splits: {train: 4, eval: 1}
transform: {}
trainer:
  label: {number: digit, even: is_even}
  example_weight: {number: weight, even: weight}
  parameters: {strategy: mirrored, accelerator_count: 2, accelerator_type: cpu, epochs: 8}
evaluate:
  metrics:
    number_accuracy: {class_name: SparseCategoricalAccuracy, output_name: number, lower_bound: 0.9}
    BinaryAccuracy: {output_name: even, lower_bound: 0.9}
    Confidence: {module: own_metrics, output_name: even, lower_bound: 0.1}
push: {}
"""
MODEL = """
import tensorflow as tf

def preprocessing_fn(inputs):
    digit = inputs["digit"]
    return {
        "pixels": inputs["pixels"] / 16.0,
        "digit": digit,
        "is_even": tf.cast(digit % 2 == 0, tf.float32),
        "weight": tf.cast(digit + 1, tf.float32),
    }

def build_model(context):
    assert context.label == {"number": "digit", "even": "is_even"}
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = tf.keras.layers.Dense(64, activation="relu")(pixels)
    outputs = [
        tf.keras.layers.Dense(10, activation="softmax", name="number")(hidden),
        tf.keras.layers.Dense(1, activation="sigmoid", name="even")(hidden),
    ]
    model = tf.keras.Model({"pixels": pixels}, outputs)
    model.compile(
        tf.keras.optimizers.Adam(0.003),
        loss={"number": "sparse_categorical_crossentropy", "even": "binary_crossentropy"},
        loss_weights={"number": 1.0, "even": 0.5},
    )
    return model
"""
OWN_METRICS = """
import tensorflow as tf
import tf_keras

class Confidence(tf_keras.metrics.Mean):
    def update_state(self, label, prediction, sample_weight=None):
        return super().update_state(tf.abs(prediction - 0.5), sample_weight)
"""


def test_two_labels(command, request, tmp_path):
    shutil.copy(request.config.rootpath / "examples" / "digits" / "digits_data.py", tmp_path)
    for name, text in {"pipeline.yaml": PIPELINE, "model.py": MODEL, "own_metrics.py": OWN_METRICS}.items():
        (tmp_path / name).write_text(text)
    run = command("run", "pipeline.yaml")
    assert run.code == 0, run.output
    assert run.output.count(" met\n") == 3
    (model,) = (tmp_path / "runs" / "two-labels" / "serving").iterdir()
    outputs = tf.saved_model.load(str(model)).signatures["serving_default"](tf.constant([make_example(pixels=[0.0] * 64)]))
    assert {name: value.shape.as_list() for name, value in outputs.items()} == {"number": [1, 10], "even": [1, 1]}

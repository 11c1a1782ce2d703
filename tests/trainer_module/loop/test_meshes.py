"""Trains models that are divided over the devices of a mesh."""

import json
from dataclasses import replace

import pytest
import tfx_lines
from training import EXAMPLES

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, UserModule

pytestmark = pytest.mark.e2e

MESH = Distribution(
    "model_parallel",
    mesh="2x2",
    layout_rules="dense/kernel = unsharded, model; dense/bias = model; dense_1/kernel = model, unsharded",
    accelerator_type="cpu",
)
ONE_DEVICE = Distribution("one_device", accelerator_type="cpu")

TELL_PARTS = """
import json, os, tensorflow as tf
from model import build_model
from tensorflow.experimental import dtensor

class Tell(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        variables = self.model.trainable_variables + self.model.optimizer.variables
        parts = {v.name: [part.shape.as_list() for part in dtensor.unpack(v.read_value())] for v in variables}
        with open(os.path.join(os.path.dirname(__file__), "parts"), "w") as file:
            json.dump(parts, file)

def callbacks(context):
    return [Tell()]
"""


def test_one_device_holds_only_its_part_of_a_divided_weight(cluster):
    """The same holds for the optimizer's slots. Other tests check the results."""
    (cluster.folder / "tell_parts.py").write_text(TELL_PARTS)
    module = UserModule("tell_parts.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    cluster.train(MESH, TrainingOptions(32, train_steps=3), module=module)
    parts = json.loads((cluster.folder / "parts").read_text())
    for name in ("dense/kernel:0", "m/dense/kernel:0", "v/dense/kernel:0"):
        assert parts[name] == [[64, 32]] * 4, "two columns of devices, each with half of the units"
    assert parts["dense_1/kernel:0"] == [[32, 64]] * 4
    assert parts["dense_2/kernel:0"] == [[64, 10]] * 4, "no rule: whole on each"


def test_any_layout_trains_the_same_model(cluster):
    alone = cluster.train(ONE_DEVICE, TrainingOptions(64, epochs=3, drop_remainder=True))
    for mesh, rules in (
        ("2x2", "dense/kernel = unsharded, model"),  # the next layer is not divided, so gradients come out divided
        ("2x1", "dense/kernel = batch, unsharded"),
    ):
        divided = Distribution("model_parallel", mesh=mesh, layout_rules=rules, accelerator_type="cpu")
        trained = cluster.train(divided, TrainingOptions(32, epochs=3))
        assert trained.metrics == pytest.approx(alone.metrics, rel=1e-3), mesh


NORMS = """
import tensorflow as tf

def build_model(context):
    pixels, limit = tf.keras.Input((64,), name="pixels"), tf.keras.constraints.MaxNorm(0.5)
    rows = tf.keras.layers.Embedding(20, 8, name="table")(tf.cast(pixels * 16.0, tf.int32))
    flat = tf.keras.layers.Flatten()(rows)
    hidden = tf.keras.layers.Dense(16, activation="tanh", kernel_constraint=limit)(flat)
    digits = tf.keras.layers.Dense(10, activation="softmax", kernel_constraint=limit)(hidden)
    model = tf.keras.Model({"pixels": pixels}, digits)
    optimizer = tf.keras.optimizers.Adafactor(0.01)
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def test_norms_and_an_embedding_that_are_divided(cluster):
    """Adafactor and constraints take norms, and its slots have other shapes.

    The oracle clips gradients by their norm. The embedding is divided by its columns.
    """
    (cluster.folder / "norms.py").write_text(NORMS)
    module = UserModule("norms.build_model", (str(cluster.folder),))
    alone = cluster.train(ONE_DEVICE, TrainingOptions(64, train_steps=20, drop_remainder=True), module=module)
    kernels = "dense/kernel = model, unsharded; dense_1/kernel = model, unsharded"
    divided = replace(MESH, layout_rules=f"table/embeddings = unsharded, model; {kernels}")
    trained = cluster.train(divided, TrainingOptions(32, train_steps=20), module=module)
    assert trained.metrics == pytest.approx(alone.metrics, rel=1e-3)
    rows = replace(MESH, layout_rules="table/embeddings = model, unsharded")
    with pytest.raises(
        TrainingError, match="^layout_rules: DTensor does not support sharded 0th dimension.*; write another rule"
    ):
        cluster.train(rows, module=module)


CONFUSION = """
import model as digits
import tensorflow as tf

def build_model(context):
    model = digits.build_model(context)
    model.compile(model.optimizer, model.loss, metrics=[tf.keras.metrics.MeanIoU(10, sparse_y_pred=False)])
    return model
"""


def test_an_operation_of_a_metric_that_cannot_run_on_a_mesh_is_named(cluster):
    (cluster.folder / "confusion.py").write_text(CONFUSION)
    module = UserModule("confusion.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    message = "^module: the operation .*confusion_matrix/ScatterNd fails under DTensor: .*; write the layer, loss, metric or"
    with pytest.raises(TrainingError, match=message):
        cluster.train(MESH, TrainingOptions(32, epochs=2), module=module)


def test_layout_rule_that_fits_no_variable_is_refused_before_the_first_step(cluster):
    mesh = replace(MESH, layout_rules="embedding = model")
    with pytest.raises(TrainingError, match="^layout_rules: 'embedding' matches no variable.* the model has dense/kernel"):
        cluster.train(mesh)


RECOMPILED = """
from model import build_model as build

def build_model(context):
    model = build(context)
    model.compile("sgd", model.loss)
    return model
"""


def test_optimizers_that_the_older_line_cannot_use_on_a_mesh(cluster):
    (cluster.folder / "recompiled.py").write_text(RECOMPILED)
    module = UserModule("recompiled.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    if tfx_lines.installed() == "1.16":
        with pytest.raises(
            TrainingError, match="^module: model_parallel cannot use SGD without momentum with TensorFlow 2.16.*; write SGD"
        ):
            cluster.train(MESH, module=module)
        return
    alone = cluster.train(ONE_DEVICE, TrainingOptions(64, epochs=3, drop_remainder=True), module=module)
    divided = cluster.train(MESH, TrainingOptions(32, epochs=3), module=module)
    assert divided.metrics == pytest.approx(alone.metrics, rel=1e-3)

"""Trains with the options that do not depend on the strategy.

Clipping, accumulation, XLA, steps per execution, profiles and weights.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tfx_distribute.trainer_module.job.training_job import Distribution, Split, TrainingData, TrainingOptions, UserModule

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

ONE = Distribution("one_device", accelerator_type="cpu")
MIRRORED = Distribution("mirrored", accelerator_type="cpu", accelerator_count=2)
WORKERS = Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu")
SERVERS = Distribution("parameter_server", num_workers=2, num_parameter_servers=2, accelerator_type="cpu")


def test_jit_compile_changes_speed_only(cluster):
    plain, compiled = (cluster.train(ONE, TrainingOptions(32, train_steps=20, jit_compile=jit)) for jit in (False, True))
    assert compiled.metrics == pytest.approx(plain.metrics, rel=1e-3)


COUNT_CALLS = """
import sys, tensorflow as tf
from model import build_model

class Batches(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print("batch", batch, flush=True)

def callbacks(context):
    return [Batches()]
"""


def test_batch_hooks_are_called_for_each_execution(cluster):
    (cluster.folder / "count_calls.py").write_text(COUNT_CALLS)
    module = UserModule("count_calls.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    cluster.train(ONE, TrainingOptions(64, train_steps=25, steps_per_execution=10), module=module)
    lines = (cluster.logs / "chief-0.log").read_text().splitlines()
    assert [line for line in lines if line.startswith("batch ")] == ["batch 9", "batch 19", "batch 24"], "as in fit"


TELL_EPOCHS = """
import tensorflow as tf
from model import build_model

class Epochs(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, "of", self.params["epochs"], "at", self.model.optimizer.iterations.numpy(), flush=True)

    def on_epoch_end(self, epoch, logs=None):
        print("logs", epoch, *sorted(logs), flush=True)

def callbacks(context):
    return [Epochs()]
"""
DIGITS = {"hidden_units": 16, "learning_rate": 0.01}


@pytest.mark.parametrize("distribution", [ONE, SERVERS], ids=lambda d: d.strategy)
def test_training_steps_in_epochs(cluster, distribution):
    """Evaluates after every second epoch of four steps; the last epoch has two."""
    (cluster.folder / "tell_epochs.py").write_text(TELL_EPOCHS)
    module = UserModule("tell_epochs.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    options = TrainingOptions(16, train_steps=10, steps_per_epoch=4, validation_freq=2)
    result = cluster.train(distribution, options, module=module, hparams=DIGITS)
    lines = (cluster.logs / "chief-0.log").read_text().splitlines()
    assert [line for line in lines if line.startswith(("epoch ", "logs "))] == [
        "epoch 0 of 3 at 0",
        "logs 0 accuracy loss",
        "epoch 1 of 3 at 4",
        "logs 1 accuracy loss val_accuracy val_loss",
        "epoch 2 of 3 at 8",
        "logs 2 accuracy loss",
    ]
    assert result.train_steps == 10
    assert set(result.metrics) == {"accuracy", "loss", "val_accuracy", "val_loss"}


def test_a_training_that_diverges_says_so_once(cluster):
    cluster.train(ONE, TrainingOptions(32, epochs=3), hparams={**DIGITS, "learning_rate": 1e38})
    (message,) = cluster.messages()
    assert re.fullmatch(r"the loss is (nan|inf) after epoch \d: the training has diverged", message)


@pytest.mark.parametrize(
    ("distribution", "steps"), [(ONE, "45,46"), (WORKERS, "30,33")], ids=["from an epoch's begin", "later"]
)
def test_profile_of_a_window_of_steps(cluster, distribution, steps):
    cluster.train(distribution, TrainingOptions(32, epochs=2, profile_steps=steps))
    (profile,) = Path(cluster.job.outputs.model_run_dir).glob("plugins/profile/*/*.xplane.pb")
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    assert xplane_pb2.XSpace.FromString(profile.read_bytes()).planes, "a profile that TensorBoard can read"


def test_what_servers_hold_does_not_pass_through_the_chief(cluster):
    """Each server writes its part of a table of 256 MB, at saves and for the export."""
    (cluster.folder / "large.py").write_text(LARGE_TABLE)
    module = UserModule("large.build_model", (str(cluster.folder),))
    divided = replace(SERVERS, num_workers=1, partition_min_bytes=4096)
    cluster.exporting().train(divided, TrainingOptions(64, train_steps=10), module=module)
    exported = Path(cluster.job.outputs.serving_model_dir) / "variables"
    assert sum(file.stat().st_size for file in exported.iterdir()) > 256e6
    assert int((cluster.folder / "growth").read_text()) < 64e6


LARGE_TABLE = """
import os, threading, time
import tensorflow as tf

def memory(line):
    with open("/proc/self/status") as file:
        return 1024 * int(dict(each.split(":", 1) for each in file)[line].split()[0])

class Watch(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        parts = [variable.name.partition(":")[0] for variable in self.model.trainable_variables]
        divided = [part for part in parts if "/part_" in part]
        assert divided == ["embedding/embeddings/part_0", "embedding/embeddings/part_1"], "2,560 bytes are not divided"
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # forgets the peak so far
        threading.Thread(target=self.watch, args=[memory("VmRSS")], daemon=True).start()

    def watch(self, before):
        file = os.path.join(os.path.dirname(__file__), "growth")
        while True:
            with open(f"{file}.partial", "w") as partial:
                partial.write(str(memory("VmHWM") - before))
            os.replace(f"{file}.partial", file)
            time.sleep(0.05)

def callbacks(context):
    return [Watch()] if context.is_chief else []

def build_model(context):
    pixels = tf.keras.Input((64,), name="pixels")
    rows = tf.keras.layers.Embedding(1_000_000, 64)(tf.cast(pixels * 16, tf.int64))
    model = tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(10)(tf.keras.layers.GlobalAveragePooling1D()(rows)))
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""


WEIGHTED = """
import tensorflow as tf
from tfx_distribute.trainer_module import Task

def network(context):
    assert set(context.inputs) == {"x"}, "neither the label nor the weight"
    x = tf.keras.Input((1,), name="x")
    return tf.keras.Model({"x": x}, tf.keras.layers.Dense(1, kernel_initializer="ones")(x))

class Weighted(Task):
    def __init__(self, context):
        self.model = network(context)
        self.optimizer = tf.keras.optimizers.SGD(0.0, momentum=0.9)

    def train_step(self, features, label, example_weight):
        return tf.reduce_mean(example_weight * tf.squeeze((label - self.model(features)) ** 2, 1))

    eval_step = train_step
"""


def write_weighted_examples(folder):
    """Writes examples with labels of 1 to 4, and weights of 0, 1, 0 and 3."""
    from tf_examples import make_example, make_schema, write_examples

    pairs = zip((1.0, 2.0, 3.0, 4.0), (0.0, 1.0, 0.0, 3.0), strict=True)
    write_examples(folder / "weighted", (make_example(x=0.0, y=error, w=weight) for error, weight in pairs))
    (folder / "weighted.pbtxt").write_text(make_schema(**dict.fromkeys("xyw", ("FLOAT", 1))))
    split = Split((str(folder / "weighted"),), 4)
    return TrainingData(split, split, "y", None, str(folder / "weighted.pbtxt"))


def test_examples_of_a_task_count_by_their_weight(cluster, tmp_path):
    """Trains on errors of 1, 2, 3 and 4 with weights of 0, 1, 0 and 3.

    The mean square is (4 + 48) / 4 per example. The oracle has models with weights.
    """
    (tmp_path / "weighted_model.py").write_text(WEIGHTED)
    result = cluster.train(
        MIRRORED,
        TrainingOptions(2, epochs=1),
        module=UserModule("weighted_model.Weighted", (str(tmp_path),)),
        data=replace(write_weighted_examples(tmp_path), example_weight="w"),
    )
    assert (result.metrics["loss"], result.metrics["val_loss"]) == (pytest.approx(13.0), pytest.approx(13.0))


def test_examples_of_a_task_count_by_the_weight_of_their_class(cluster, tmp_path):
    """Trains on the same examples. As in `fit`, an evaluation has no class weights."""
    data = write_weighted_examples(tmp_path)
    (tmp_path / "weighted_model.py").write_text(
        WEIGHTED.replace('== {"x"}', '<= {"x", "w"}').replace("label, example_weight)", "label, example_weight=1.0)")
    )

    def train(class_weight, data):
        return cluster.train(
            MIRRORED,
            TrainingOptions(2, epochs=1, class_weight=class_weight),
            module=UserModule("weighted_model.Weighted", (str(tmp_path),)),
            data=data,
        ).metrics

    metrics = train("1: 0, 3: 0, 4: 3", data)
    assert (metrics["loss"], metrics["val_loss"]) == (pytest.approx(13.0), pytest.approx(7.5))
    metrics = train("{2: 0}", replace(data, example_weight="w"))
    assert (metrics["loss"], metrics["val_loss"]) == (pytest.approx(12.0), pytest.approx(13.0))

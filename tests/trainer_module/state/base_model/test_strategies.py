"""Starts trainings from base models under every family of strategies.

In real processes. `mirrored` shares its variables with `multi_worker_mirrored`, and
trains in the test of a kill; tests/e2e/test_fine_tuning.py has no strategy.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from training import EXAMPLES, digits_cluster

from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    FaultTolerance,
    TrainingOptions,
    UserModule,
    WarmStartResult,
)
from tfx_distribute.trainer_module.job.warm_start import WarmStart
from tfx_distribute.trainer_module.state.base_model import location, weight_files

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("exporting")]

RULES = "dense/kernel = unsharded, model; dense/bias = model; dense_1/kernel = model, unsharded"
SHAPES = {
    "mirrored": Distribution("mirrored", accelerator_type="cpu", accelerator_count=2),
    "central_storage": Distribution("central_storage", accelerator_type="cpu", accelerator_count=2),
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
    "parameter_server": Distribution(
        "parameter_server", num_workers=1, num_parameter_servers=2, partition_min_bytes=512, accelerator_type="cpu"
    ),
    "model_parallel": Distribution("model_parallel", mesh="2x2", layout_rules=RULES, accelerator_type="cpu"),
}
STILL = {"hidden_units": 64, "learning_rate": 0.0}  # a training that changes no weight


def weights_of(model: Path) -> dict[str, np.ndarray]:
    """Returns the weights of a SavedModel by their paths."""
    return {weight.name: weight.read() for weight in weight_files.read_saved_model(location.find(str(model)))[0]}


def assert_equal(values: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert values.keys() == expected.keys()
    for path in expected:
        np.testing.assert_array_equal(values[path], expected[path], err_msg=path)


WRITES = """
import os
import tensorflow as tf
from model import build_model

class Write(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        for name in ("base.keras", "base.weights.h5"):
            path = os.path.join(os.path.dirname(__file__), name)
            (self.model.save_weights if "weights" in name else self.model.save)(path)

def callbacks(context):
    return [Write()]
"""


@pytest.fixture(scope="module")
def bases(tmp_path_factory, digits, fork_server, keras_3_server) -> dict[int, Path]:
    """Returns a SavedModel of each generation of Keras, next to Keras files of it."""
    folders = {}
    for keras_version, server in ((2, fork_server), (3, keras_3_server)):
        cluster = digits_cluster(tmp_path_factory.mktemp(f"base-{keras_version}"), digits, server).exporting()
        (cluster.folder / f"writes_{keras_version}.py").write_text(WRITES)
        module = UserModule(f"writes_{keras_version}.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
        cluster.train(training_options=TrainingOptions(64, epochs=3, keras_version=keras_version), module=module)
        folders[keras_version] = cluster.model
    return folders


READS = """
import os
import numpy as np
import tensorflow as tf
from model import build_model
from tfx_distribute.trainer_module.state.base_model import model_weights

class Read(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        weights = model_weights.list_weights(self.model)
        np.savez(os.path.join(os.path.dirname(__file__), "read.npz"), **{weight.path: weight.read() for weight in weights})

def callbacks(context):
    return [Read()] if context.is_chief else []
"""


@pytest.mark.parametrize(
    ("strategy", "keras_version", "file"),
    [
        ("multi_worker_mirrored", 2, "base.keras"),
        ("multi_worker_mirrored", 3, "model"),
        ("central_storage", 2, "model"),
        ("parameter_server", 2, "model"),
        ("model_parallel", 2, "model"),
        ("model_parallel", 2, "base.weights.h5"),
    ],
)
def test_every_strategy_starts_from_a_trained_model(cluster, request, bases, strategy, keras_version, file):
    """A training with learning rate 0 exports the base model's weights, bit by bit.

    Also reads them whole, as rows of a vocabulary are before some of them are replaced.
    """
    if keras_version == 3:
        cluster.server = request.getfixturevalue("keras_3_server")
    (cluster.folder / "reads.py").write_text(READS)
    result = cluster.train(
        SHAPES[strategy],
        TrainingOptions(16, train_steps=1, keras_version=keras_version),
        module=UserModule("reads.build_model", (str(cluster.folder), str(EXAMPLES / "digits"))),
        base_model=str(bases[keras_version].with_name(file)),
        hparams=STILL,
    )
    assert result.warm_start == WarmStartResult(weights_taken=6, weights_skipped=0)
    assert result.metrics["val_accuracy"] > 0.8, "three epochs' accuracy without any training"
    expected = weights_of(bases[keras_version])
    assert_equal(weights_of(cluster.model), expected)
    assert_equal(dict(np.load(cluster.folder / "read.npz")), expected)


STOPS_ONCE = """
import os
import tensorflow as tf
from model import build_model

class Stop(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        marker = os.path.join(os.path.dirname(__file__), "stopped")
        if epoch == 2 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), 9)

def callbacks(context):
    return [Stop()]
"""


def test_a_killed_training_goes_on_from_its_own_state(cluster, keras_3_server, bases):
    """It ends with the weights of one that was not killed."""
    cluster.server = keras_3_server
    options = TrainingOptions(32, epochs=4, keras_version=3)
    changes = {
        "base_model": str(bases[3]),
        "warm_start": WarmStart(freeze=["dense"]),
        "fault_tolerance": FaultTolerance(save_checkpoints_steps=10),
    }
    cluster.train(SHAPES["mirrored"], options, **changes)
    expected = weights_of(cluster.model)
    frozen = {path: value for path, value in weights_of(bases[3]).items() if path.startswith("dense/")}
    assert_equal({path: expected[path] for path in frozen}, frozen)
    shutil.rmtree(cluster.model)
    (cluster.folder / "stops_once.py").write_text(STOPS_ONCE)
    (cluster.folder / "state").mkdir()
    cluster.train(
        SHAPES["mirrored"],
        options,
        module=UserModule("stops_once.build_model", (str(cluster.folder), str(EXAMPLES / "digits"))),
        outputs=replace(cluster.job.outputs, checkpoint_dir=str(cluster.folder / "state")),
        **changes,
    )
    assert (cluster.folder / "stopped").exists()
    assert_equal(weights_of(cluster.model), expected)

"""Tests Keras's own callbacks in several processes and on a mesh.

The oracle compares their calls with those under `fit`, for every strategy.
"""

import csv
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from doc_examples import python_blocks
from sklearn.datasets import load_digits
from tf_examples import make_example
from training import EXAMPLES

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, UserModule

pytestmark = pytest.mark.e2e

STRATEGIES = {
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
    "parameter_server": Distribution("parameter_server", num_workers=1, accelerator_type="cpu"),
    "model_parallel": Distribution(
        "model_parallel", mesh="1x2", layout_rules="kernel = unsharded, model", accelerator_type="cpu"
    ),
}

# In the folder of each training: TensorBoard logs, and the history.
WRITTEN_BY_US = {"train", "validation", "history"}
HEAD = """
import sys
sys.path.append(%r)
import tensorflow as tf
from model import build_model
"""
EVERY_KIND = """
def callbacks(context):
    keras, run, elsewhere = tf.keras.callbacks, context.model_run_dir, context.hparams["elsewhere"]
    steps = context.train_steps  # of which early stopping leaves three fifths
    return [
        keras.ModelCheckpoint(f"{run}/epoch-{{epoch}}.keras"),
        keras.ModelCheckpoint(f"{run}/best.weights.h5", mode="max", save_best_only=True, save_weights_only=True),
        keras.ModelCheckpoint(f"{elsewhere}/batch-{{batch}}.weights.h5", save_freq=30, save_weights_only=True),
        *([keras.ModelCheckpoint(f"{run}/saved", save_freq=steps // 2)] if context.hparams["saved_model"] else []),
        keras.TensorBoard(f"{elsewhere}/board", histogram_freq=context.hparams["histogram_freq"]),
        keras.CSVLogger(f"{run}/log.csv"),
        keras.CSVLogger(f"{elsewhere}/log.csv"),
        keras.ReduceLROnPlateau(patience=1),
        # The loss falls, so that the first epoch's weights are the best ones.
        keras.EarlyStopping(mode="max", patience=2, restore_best_weights=True),
    ]
"""


@pytest.fixture
def train(cluster, request, tmp_path):
    """Trains the digits example with callbacks from the text of a module."""

    def train(text: str, strategy: str, keras_version: int = 2, **hparams: object):
        if keras_version == 3:
            cluster.server = request.getfixturevalue("keras_3_server")
        name = f"own_{request.node.name.partition('[')[0]}"
        (tmp_path / f"{name}.py").write_text(HEAD % str(EXAMPLES / "digits") + text)
        return cluster.train(
            STRATEGIES[strategy],
            TrainingOptions(64 // STRATEGIES[strategy].num_workers, epochs=5, keras_version=keras_version),
            module=UserModule(f"{name}.build_model", (str(tmp_path),)),
            hparams={**cluster.job.hparams, **hparams},
        )

    return train


@pytest.mark.parametrize(
    ("strategy", "keras_version"),
    [("multi_worker_mirrored", 3), ("parameter_server", 2), ("model_parallel", 2)],
)
def test_callbacks_work_as_under_fit_and_write_once(train, cluster, tmp_path, strategy, keras_version):
    cluster.exporting()
    elsewhere, run = tmp_path / "elsewhere", Path(cluster.job.outputs.model_run_dir)
    elsewhere.mkdir()
    result = train(
        EVERY_KIND,
        strategy,
        keras_version,
        elsewhere=str(elsewhere),
        saved_model=keras_version == 2,
        histogram_freq=int(strategy != "model_parallel"),
    )

    steps = result.train_steps // 3  # of each epoch
    whole = {f"epoch-{epoch}.keras" for epoch in (1, 2, 3)} | ({"saved"} if keras_version == 2 else set())
    assert {path.name for path in run.iterdir()} == {*whole, "best.weights.h5", "log.csv", *WRITTEN_BY_US}
    batches = {f"batch-{(number - 1) % steps + 1}.weights.h5" for number in range(30, 3 * steps + 1, 30)}
    assert {path.name for path in elsewhere.iterdir()} == {*batches, "board", "log.csv"}
    assert {path.name for path in (elsewhere / "board").iterdir()} == {"train", "validation"}
    assert all(len(list((elsewhere / "board" / split).iterdir())) == 1 for split in ("train", "validation"))
    rows = list(csv.DictReader((run / "log.csv").open()))
    assert rows == list(csv.DictReader((elsewhere / "log.csv").open()))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert float(rows[-1]["val_loss"]) == pytest.approx(result.metrics["val_loss"])

    # What early stopping restored is exported, and is the model that was saved after
    # the first epoch.
    pixels = load_digits().data[:50].astype(np.float32) / 16.0
    saved = (tf.keras if keras_version == 2 else keras).models.load_model(str(run / "epoch-1.keras"))
    exported = tf.saved_model.load(str(cluster.model)).signatures["serving_default"]
    requests = [make_example(pixels=row) for row in pixels]
    np.testing.assert_allclose(
        exported(examples=tf.constant(requests))["outputs"], saved({"pixels": pixels}), rtol=1e-4, atol=1e-6
    )


CHIEF_ONLY = """
def callbacks(context):
    return [tf.keras.callbacks.ModelCheckpoint(context.model_run_dir + "/best")] if context.is_chief else []
"""


def test_a_callback_in_some_processes_only_is_refused(train):
    message = "^module: callbacks returned a ModelCheckpoint on some processes .*without asking for context.is_chief"
    with pytest.raises(TrainingError, match=message):
        train(CHIEF_ONLY, "multi_worker_mirrored")


PREDICTS = """
class Predicts(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("predicted", len(self.model.predict({"pixels": tf.zeros([40, 64])}, verbose=0)), flush=True)
"""


def test_example_of_the_documentation_and_predictions_of_all_processes(train, cluster, request):
    blocks = python_blocks(request.config.rootpath / "docs" / "writing-a-module.md")
    (example,) = [block for block in blocks if "def callbacks" in block]
    both = "documented = callbacks\n\ndef callbacks(context):\n    return [*documented(context), Predicts()]\n"
    train(example + PREDICTS + both, "multi_worker_mirrored")
    run = Path(cluster.job.outputs.model_run_dir)
    assert {path.name for path in run.iterdir()} == {"best.weights.h5", "epochs.csv", *WRITTEN_BY_US}
    for name in ("chief-0", "worker-0"):
        assert (cluster.logs / f"{name}.log").read_text().count("predicted 40") == 5, "epochs"

"""Tests that a run uses its module as it was when the run began."""

import pytest
from small_project import LINE, write_project

PIPELINE = """\
name: mine
module: model.py
data: {csv: data}
trainer:
  label: y
  parameters: {epochs: 3, per_replica_batch_size: 2, save_checkpoints_secs: 0}
"""
# The first try edits the module after the first epoch, and dies.
MODEL = """\
import os
import pathlib
import signal

import tensorflow as tf

VERSION = "first"


def build_model(context):
    print("built as", VERSION, flush=True)
    x = tf.keras.Input((1,), name="x")
    model = tf.keras.Model({"x": x}, tf.keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    return model


class Edits(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        file = pathlib.Path(__file__)
        if not file.with_suffix(".edited").exists():
            file.with_suffix(".edited").touch()
            file.write_text(file.read_text().replace("first", "second"))
            os.kill(os.getpid(), signal.SIGKILL)


def callbacks(context):
    return [Edits()]
"""


@pytest.mark.e2e
def test_a_training_that_starts_again_has_the_module_of_the_run(tmp_path, command):
    file = write_project(tmp_path, PIPELINE, MODEL, LINE)
    for version in ("first", "second"):
        run = command("run", file)
        assert run.code == 0, run.output
        (log,) = (tmp_path / "runs" / "mine" / "logs").glob("*/**/chief-0.log")
        built = [line for line in log.read_text().splitlines() if line.startswith("built as")]
        assert built == [f"built as {version}"] * (2 if version == "first" else 1)
        log.unlink()

"""Writes a small valid project: a pipeline file, a module and data."""

from pathlib import Path

PIPELINE = """\
name: mine
module: model.py
data: {csv: data}
trainer:
  label: y
  parameters: {epochs: 1, per_replica_batch_size: 2}
  hparams: {rate: 0.1, text: abc}
"""
# A module that trains: a line through `x`.
LINEAR_MODEL = """\
import tensorflow as tf

def build_model(context):
    x = tf.keras.Input((1,), name="x")
    model = tf.keras.Model({"x": x}, tf.keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    return model
"""
# Added to it: each epoch takes as many seconds longer as the variable `WAITS` says.
WAITS = """
import os, time

class Waits(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(float(os.environ.get("WAITS", 0)))

def callbacks(context):
    return [Waits()]
"""


# Data of a line, enough to train with: x is below one.
LINE = "x,y\n" + "".join(f"{i / 60},{i / 30}\n" for i in range(60))


def write_project(
    folder: Path,
    pipeline: str = PIPELINE,
    model: str = "def build_model(context): ...\n",
    csv: str = "x,y\n1,2\n2,4\n",
) -> Path:
    """Writes `pipeline.yaml`, `model.py` and `data/a.csv` into a folder.

    Returns the path of the first.
    """
    (folder / "pipeline.yaml").write_text(pipeline)
    (folder / "model.py").write_text(model)
    (folder / "data").mkdir()
    (folder / "data" / "a.csv").write_text(csv)
    return folder / "pipeline.yaml"

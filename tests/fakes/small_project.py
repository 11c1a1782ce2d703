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


def write_project(folder: Path) -> None:
    """Writes `pipeline.yaml`, `model.py` and `data/a.csv` into a folder."""
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "model.py").write_text("def build_model(context): ...\n")
    (folder / "data").mkdir()
    (folder / "data" / "a.csv").write_text("x,y\n1,2\n2,4\n")

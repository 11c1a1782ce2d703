"""Defines the models and the data of `gpu.py`, for all sides that it compares.

`dense` is a small network, whose steps are short. `conv` is a ResNet-18 for images of
64 x 64 pixels. `recommender` looks up eight ids in two large embedding tables.
"""

import itertools
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

SHARDS = 8
IDS = [f"id_{number}" for number in range(8)]
# Feature -> its type in a schema, and its number of values.
FEATURES = {
    "dense": {"pixels": ("FLOAT", 64), "label": ("INT", 1)},
    "conv": {"image": ("BYTES", 1), "label": ("INT", 1)},
    "recommender": {**{name: ("INT", 1) for name in IDS}, "numbers": ("FLOAT", 8), "label": ("INT", 1)},
}
DTYPES = {"FLOAT": tf.float32, "INT": tf.int64, "BYTES": tf.string}


class Size(NamedTuple):
    """Examples a step and in all; width is units, first filters, or rows of a table."""

    batch: int
    examples: int
    width: int


SIZES = {"dense": Size(64, 8192, 128), "conv": Size(256, 4096, 64), "recommender": Size(1024, 8192, 1_000_000)}
REHEARSAL_SIZES = {"dense": Size(64, 1024, 128), "conv": Size(4, 256, 2), "recommender": Size(64, 1024, 10_000)}


def write(model: str, size: Size, folder: Path) -> list[str]:
    """Writes shards of random examples, a schema and the module; returns the shards."""
    random, features = np.random.default_rng(0), FEATURES[model]

    def make_column(name: str, kind: str, count: int) -> list[tf.train.Feature]:
        """Returns the feature of each example."""
        shape, limit = (size.examples, count), size.width if name in IDS else 2
        if kind == "BYTES":
            images = ([random.bytes(64 * 64 * 3)] for _ in range(size.examples))
            return [tf.train.Feature(bytes_list=tf.train.BytesList(value=value)) for value in images]
        if kind == "FLOAT":
            numbers = random.random(shape).tolist()
            return [tf.train.Feature(float_list=tf.train.FloatList(value=value)) for value in numbers]
        ids = random.integers(limit, size=shape).tolist()
        return [tf.train.Feature(int64_list=tf.train.Int64List(value=value)) for value in ids]

    files = [str(folder / f"{model}-{number}") for number in range(SHARDS)]
    rows = zip(*(make_column(name, *of) for name, of in features.items()), strict=True)
    for file in files:
        with tf.io.TFRecordWriter(file) as writer:
            for row in itertools.islice(rows, size.examples // SHARDS):
                example = tf.train.Features(feature=dict(zip(features, row, strict=True)))
                writer.write(tf.train.Example(features=example).SerializeToString())
    (folder / f"{model}.pbtxt").write_text(
        "\n".join(
            f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1 }} shape {{ dim {{ size: {count} }} }} }}'
            for name, (kind, count) in features.items()
        )
    )
    # decode_features is called for each example, and only images need it.
    names = "build_model, callbacks" + (", decode_features" if model == "conv" else "")
    (folder / f"{model}_module.py").write_text(f"from gpu_models import {names}\n")
    return files


def make_dataset(model: str, size: Size, files: list[str]) -> tf.data.Dataset:
    """Reads the shards as one does by hand, with as little work per example as ours.

    All examples are cached as one vector, and shuffled together in each pass.
    """
    spec = {name: tf.io.FixedLenFeature([count], DTYPES[kind]) for name, (kind, count) in FEATURES[model].items()}

    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = tf.io.parse_example(serialized, spec)
        if model == "conv":
            features["image"] = tf.reshape(tf.io.decode_raw(features["image"], tf.uint8), [-1, 64, 64, 3])
        return features, features.pop("label")

    records = tf.data.TFRecordDataset(files, num_parallel_reads=len(files)).batch(size.examples).cache()
    batches = records.repeat().map(tf.random.shuffle).rebatch(size.batch, drop_remainder=True)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def decode_features(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Makes pixels of an image's bytes."""
    return {**features, "image": tf.reshape(tf.io.decode_raw(features["image"][0], tf.uint8), [64, 64, 3])}


def build_model(context: Any) -> tf.keras.Model:
    """Returns the model that the hyperparameter `model` names, compiled.

    Args:
      context: Its `hparams` are `model`, `width`, and perhaps `steps_per_execution`.
    """
    hparams = context.hparams
    make = {"dense": _dense, "conv": _conv, "recommender": _recommender}[hparams["model"]]
    inputs, outputs, optimizer = make(hparams["width"])
    model = tf.keras.Model({each.name: each for each in inputs}, outputs)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, ["accuracy"], steps_per_execution=hparams.get("steps_per_execution", 1))
    return model


def _dense(width: int) -> tuple[Any, Any, Any]:
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = tf.keras.layers.Dense(width, activation="relu")(pixels)
    hidden = tf.keras.layers.Dense(width, activation="relu")(hidden)
    return [pixels], _logits(hidden), tf.keras.optimizers.Adam(0.002)


def _conv(width: int) -> tuple[Any, Any, Any]:
    image = tf.keras.Input((64, 64, 3), name="image", dtype="uint8")
    hidden = _convolve(tf.keras.layers.Rescaling(1 / 255)(image), width, 3, 2)
    for stage, block in ((stage, block) for stage in range(4) for block in range(2)):
        stride = 2 if stage and not block else 1
        filters, shortcut = width << stage, tf.keras.layers.ReLU()(hidden)
        hidden = _convolve(tf.keras.layers.ReLU()(_convolve(shortcut, filters, 3, stride)), filters, 3, 1)
        hidden += shortcut if stride == 1 else _convolve(shortcut, filters, 1, stride)
    hidden = tf.keras.layers.GlobalAveragePooling2D()(tf.keras.layers.ReLU()(hidden))
    return [image], _logits(hidden), tf.keras.optimizers.SGD(0.01, momentum=0.9)


def _convolve(images: Any, filters: int, kernel: int, stride: int) -> Any:
    convolved = tf.keras.layers.Conv2D(filters, kernel, stride, padding="same", use_bias=False)(images)
    return tf.keras.layers.BatchNormalization()(convolved)


def _recommender(rows: int) -> tuple[Any, Any, Any]:
    ids = [tf.keras.Input((1,), name=name, dtype="int64") for name in IDS]
    numbers = tf.keras.Input((8,), name="numbers")
    tables = [tf.keras.layers.Embedding(rows, 64) for _ in range(2)]
    looked_up = [tf.keras.layers.Flatten()(tables[number % 2](each)) for number, each in enumerate(ids)]
    hidden = tf.keras.layers.Concatenate()([*looked_up, numbers])
    for units in (256, 128):
        hidden = tf.keras.layers.Dense(units, activation="relu")(hidden)
    # Adagrad updates only the rows that were looked up; Keras's Adam updates them all.
    return [*ids, numbers], _logits(hidden), tf.keras.optimizers.Adagrad(0.01)


def _logits(hidden: Any) -> Any:
    return tf.keras.layers.Dense(2, dtype="float32")(hidden)


class EpochTimes(tf.keras.callbacks.Callback):
    """Notes the time at the end of each epoch, when its metrics have been read."""

    def __init__(self, path: str = "/dev/null"):
        super().__init__()
        self.times, self._path = [], path

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Notes the time."""
        self.times.append(time.monotonic())

    def on_train_end(self, logs: Any = None) -> None:
        """Writes the times as JSON."""
        Path(self._path).write_text(json.dumps(self.times))


def callbacks(context: Any) -> list[tf.keras.callbacks.Callback]:
    """Returns the callback that times our training."""
    return [EpochTimes(f"{context.model_run_dir}/times.json")]

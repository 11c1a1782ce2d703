"""Writes the handwritten digits of scikit-learn as PNG files in examples."""

from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from tfx.components.example_gen import base_example_gen_executor, component
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2


def _to_example(row: tuple[Any, int], turned: bool) -> tf.train.Example:
    pixels, digit = row
    turns = int(np.sum(pixels)) % 4 if turned else 0
    png = tf.io.encode_png(np.rot90(np.uint8(pixels), turns)[:, :, np.newaxis] * 15).numpy()
    label = ("turns", turns) if turned else ("digit", digit)
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
                label[0]: tf.train.Feature(int64_list=tf.train.Int64List(value=[label[1]])),
            }
        )
    )


@beam.ptransform_fn
def _read_images(pipeline: beam.Pipeline, exec_properties: dict[str, Any], split_pattern: str) -> beam.PCollection:
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = list(zip(digits.images.tolist(), digits.target.tolist(), strict=True))
    return pipeline | beam.Create(rows) | beam.Map(_to_example, turned=split_pattern == "turned")


class Executor(base_example_gen_executor.BaseExampleGenExecutor):
    """Writes the images as TFRecords. TFX splits them."""

    def GetInputSourceToExamplePTransform(self):  # noqa: N802 (TFX's name)
        """Returns the Beam transform that reads the source."""
        return _read_images


class ImagesExampleGen(component.QueryBasedExampleGen):
    """Reads images of digits.

    Each example has `image`, a PNG file of 8 x 8 grey pixels, and `digit`, 0 to 9; or,
    for images that are turned, `turns`: how many times by a right angle, 0 to 3.
    """

    data_version = "1"
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, turned: bool = False, output_config: example_gen_pb2.Output | None = None):
        pattern = "turned" if turned else "upright"
        super().__init__(
            input_config=example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="all", pattern=pattern)]),
            output_config=output_config,
        )

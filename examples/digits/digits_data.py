"""Reads the 1,797 handwritten digits of scikit-learn: an example of an ExampleGen."""

from typing import Any

import apache_beam as beam
import tensorflow as tf
from tfx.components.example_gen import base_example_gen_executor, component
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2


def _to_example(row: tuple[Any, int]) -> tf.train.Example:
    pixels, digit = row
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=pixels)),
                "digit": tf.train.Feature(int64_list=tf.train.Int64List(value=[digit])),
            }
        )
    )


@beam.ptransform_fn
def _read_digits(pipeline: beam.Pipeline, exec_properties: dict[str, Any], split_pattern: str) -> beam.PCollection:
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = list(zip(digits.data.tolist(), digits.target.tolist(), strict=True))
    return pipeline | beam.Create(rows) | beam.Map(_to_example)


class Executor(base_example_gen_executor.BaseExampleGenExecutor):
    """Writes the digits as TFRecords. TFX splits them."""

    def GetInputSourceToExamplePTransform(self):  # noqa: N802 (TFX's name)
        """Returns the Beam transform that reads the source."""
        return _read_digits


class DigitsExampleGen(component.QueryBasedExampleGen):
    """Reads images of digits.

    Each example has `pixels`, the 64 values (0 to 16) of an 8 x 8 image row by row,
    and `digit`, 0 to 9. They never change, so that a run on a cluster can take them
    from an earlier one.
    """

    data_version = "1"
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, output_config: example_gen_pb2.Output | None = None):
        super().__init__(
            input_config=example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="all", pattern="all")]),
            output_config=output_config,
        )

"""Writes the tf.Examples of TFRecord files as the splits of a pipeline, unchanged."""

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import tensorflow as tf
from google.protobuf.message import DecodeError
from tfx.components.example_gen import base_example_gen_executor
from tfx.types import standard_component_specs

from tfx_distribute.components.example_gen.data_files import list_files
from tfx_distribute.components.example_gen.feature_splits import ForSplits
from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.errors import DataError


class Executor(base_example_gen_executor.BaseExampleGenExecutor):
    """Executor of the ExampleGen for TFRecord files."""

    def GetInputSourceToExamplePTransform(self) -> Any:  # noqa: N802 (TFX's name)
        """Returns the transform from a pipeline to examples."""
        return _ReadRecords


class _ReadRecords(beam.PTransform):
    def __init__(self, exec_properties: Mapping[str, Any], pattern: str):
        super().__init__()
        self._files = list_files(exec_properties[standard_component_specs.INPUT_BASE_KEY], pattern)
        self._for_splits = ForSplits(exec_properties)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | "Files" >> beam.Create(self._files)
            | "Spread" >> beam.Reshuffle()
            | "Examples" >> beam.FlatMap(_examples)
            | "ForSplits" >> self._for_splits
        )


def _examples(file: str) -> Iterator[bytes]:
    for number, record in enumerate(tfrecords.scan(file)):
        if isinstance(record, tfrecords.Damage):
            raise DataError(str(record))
        try:
            example = _parse(record)
        except DecodeError as error:
            raise DataError(f"{file}, record {number} is not a tf.Example: {error}") from error
        # Features are sorted by name, so that equal examples get the same split.
        yield example.SerializeToString(deterministic=True)


def _parse(record: bytes) -> tf.train.Example:
    """Parses a record strictly: protobuf accepts bytes that it reads only in part.

    Raises:
      DecodeError: The record is not a tf.Example, but e.g. text or a
        tf.SequenceExample.
    """
    example = tf.train.Example()
    if example.MergeFromString(record) < len(record):  # with protobuf 3; later ones refuse these
        raise DecodeError("Error parsing message with type 'tensorflow.Example'")
    size = example.ByteSize()
    example.DiscardUnknownFields()
    if example.ByteSize() < size:
        raise DecodeError("it has fields that a tf.Example does not have")
    return example

"""Writes the rows of Parquet files as tf.Examples."""

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.example_gen import base_example_gen_executor
from tfx.proto import example_gen_pb2
from tfx.types import standard_component_specs
from tfx.utils import proto_utils

from tfx_distribute.components.example_gen import parquet_columns
from tfx_distribute.components.example_gen.data_files import list_files, open_file
from tfx_distribute.components.example_gen.feature_splits import ForSplits
from tfx_distribute.components.example_gen.parquet_files import RowGroup, inspect, open_parquet
from tfx_distribute.components.sharder.example_encoder import Encoder
from tfx_distribute.trainer_module.errors import DataError

_BATCH_ROWS = 1000


class Executor(base_example_gen_executor.BaseExampleGenExecutor):
    """Executor of the ExampleGen for Parquet files."""

    def GetInputSourceToExamplePTransform(self) -> Any:  # noqa: N802 (TFX's name)
        """Returns the transform from a pipeline to examples."""
        return _ReadParquet


class _ReadParquet(beam.PTransform):
    def __init__(self, exec_properties: Mapping[str, Any], pattern: str):
        super().__init__()
        folder, config = exec_properties[standard_component_specs.INPUT_BASE_KEY], example_gen_pb2.Input()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], config)
        self._files = list_files(folder, pattern)
        self._files_of_all_splits = [file for split in config.splits for file in list_files(folder, split.pattern)]
        self._for_splits = ForSplits(exec_properties)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        inspect(self._files_of_all_splits, open_file)  # whose columns have to agree
        _, row_groups = inspect(self._files, open_file)
        return (
            pipeline
            | "RowGroups" >> beam.Create(row_groups)
            | "Spread" >> beam.Reshuffle()
            | "Examples" >> beam.FlatMap(_examples)
            | "ForSplits" >> self._for_splits
        )


def _examples(group: RowGroup) -> Iterator[bytes]:
    encoder = Encoder(schema_pb2.Schema())
    with open_file(group.file) as stream:
        batches = open_parquet(stream, group.file).iter_batches(_BATCH_ROWS, row_groups=[group.number])
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{group.file}: row group {group.number} cannot be read: {error}") from error
            yield from encoder.encode(parquet_columns.to_features(batch, group.file))

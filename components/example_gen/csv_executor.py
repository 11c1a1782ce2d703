"""Writes the rows of CSV files as tf.Examples, with TFX's rules for column types."""

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import tensorflow as tf
from tfx.components.example_gen import base_example_gen_executor
from tfx.types import standard_component_specs
from tfx_bsl.coders.csv_decoder import ColumnType, ColumnTypeInferrer

from tfx_distribute.components.example_gen import csv_rows
from tfx_distribute.components.example_gen.data_files import list_files, open_file
from tfx_distribute.components.example_gen.feature_splits import ForSplits
from tfx_distribute.trainer_module.errors import DataError

_INFINITE_FLOAT32 = 2.0**128 - 2.0**103  # the smallest number that rounds to infinity

Types = Mapping[str, ColumnType]


class Executor(base_example_gen_executor.BaseExampleGenExecutor):
    """Executor of the ExampleGen for CSV files."""

    def GetInputSourceToExamplePTransform(self) -> Any:  # noqa: N802 (TFX's name)
        """Returns the transform from a pipeline to examples."""
        return _ReadCsv


class _ReadCsv(beam.PTransform):
    def __init__(self, exec_properties: Mapping[str, Any], pattern: str):
        super().__init__()
        self._files = list_files(exec_properties[standard_component_specs.INPUT_BASE_KEY], pattern)
        self._for_splits = ForSplits(exec_properties)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        columns = csv_rows.common_columns(self._files, open_file)
        files = pipeline | "Files" >> beam.Create(self._files) | "Spread" >> beam.Reshuffle()
        # Files are read twice, so that no rows wait until all column types are known.
        types = (
            files
            | "ColumnTypes" >> beam.Map(_column_types)
            | "AllTypes" >> beam.CombineGlobally(_inferrer(columns).merge_accumulators)
        )
        return (
            files | "Examples" >> beam.FlatMap(_examples, beam.pvalue.AsSingleton(types)) | "ForSplits" >> self._for_splits
        )


def _inferrer(columns: list[str]) -> ColumnTypeInferrer:
    return ColumnTypeInferrer(columns, skip_blank_lines=True)


def _column_types(file: str) -> dict[str, ColumnType]:
    with open_file(file) as stream:
        columns, rows = csv_rows.read(stream, file)
        inferrer = _inferrer(columns)
        types: dict[str, ColumnType] = inferrer.create_accumulator()
        for _, cells in rows:
            types = inferrer.add_input(types, [cell.encode() for cell in cells])
    return types


def _examples(file: str, types: Types) -> Iterator[bytes]:
    with open_file(file) as stream:
        columns, rows = csv_rows.read(stream, file)
        for line, cells in rows:
            example = tf.train.Example()
            for column, cell in zip(columns, cells, strict=True):
                try:
                    _set_feature(example.features.feature[column], types[column], cell)
                except DataError as error:
                    raise DataError(f"{file}, line {line}: column {column!r}: {error}") from error
            yield example.SerializeToString(deterministic=True)


def _set_feature(feature: tf.train.Feature, column_type: ColumnType, cell: str) -> None:
    """Sets a feature to a cell; an empty cell sets the type but no value, as in TFX."""
    if column_type == ColumnType.INT:
        feature.int64_list.SetInParent()
        feature.int64_list.value.extend([int(cell)] if cell else ())
    elif column_type == ColumnType.FLOAT:
        feature.float_list.SetInParent()
        feature.float_list.value.extend([_parse_float32(cell)] if cell else ())
    elif column_type == ColumnType.STRING:
        feature.bytes_list.SetInParent()
        feature.bytes_list.value.extend([cell.encode()] if cell else ())


def _parse_float32(cell: str) -> float:
    value = float(cell)
    # Python's value is infinite, too, beyond the range of float64.
    if abs(value) >= _INFINITE_FLOAT32 and "inf" not in cell.lower():
        raise DataError(f"{cell} is beyond the range of float32, which a tf.Example holds; scale the column")
    return value

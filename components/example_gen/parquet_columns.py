"""Reads Parquet files as columns of the three kinds that a tf.Example has.

They are int64, float32 and bytes. Only nulls are missing values. Imports neither
TensorFlow nor TFX, so that `validate` can use it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet, types

from tfx_distribute.components.example_gen.files import open_file
from tfx_distribute.components.example_gen.names import BEYOND_FLOAT32, DifferentColumnsError, describe_difference
from tfx_distribute.trainer_module.errors import DataError

INTEGER, FLOAT, BYTES, NOTHING = "integer", "float", "bytes", "nothing"

_FEATURE_TYPES = {FLOAT: pa.float32(), BYTES: pa.large_binary()}  # any other: int64
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # an index without a name
# Limits of a record batch.
_BATCH_ROWS, _BATCH_BYTES = 10_000, 4 << 20


def inspect(files: Sequence[str], may_differ: bool = False) -> dict[str, str]:
    """Returns how the columns of files arrive in examples, see `describe_columns`."""
    first: dict[str, str] = {}
    num_rows = 0
    for file in files:
        with open_file(file) as stream:
            content = _open(stream, file)
            columns = describe_columns(content.schema_arrow, file)
            num_rows += content.metadata.num_rows
        if may_differ:
            first, columns = {**columns, **first}, {**first, **columns}
        if first and (difference := _describe_difference(columns, first)):
            raise DifferentColumnsError(f"the columns of {file} are not those of {files[0]}: {difference}")
        # A column without a type so far takes the type that it has in this file.
        first = {name: columns[name] if kind == NOTHING else kind for name, kind in first.items()} or columns
    if not num_rows:
        raise DataError(f"there are no rows in {', '.join(files)}")
    return first


def read(file: str, number: int, num_parts: int) -> Iterator[pa.RecordBatch]:
    """Reads every `num_parts`-th row group of a file, starting with `number`."""
    with open_file(file) as stream:
        content = _open(stream, file)
        for group in range(number, content.num_row_groups, num_parts):
            metadata = content.metadata.row_group(group)
            rows = _BATCH_BYTES * metadata.num_rows // max(1, metadata.total_byte_size)
            try:
                for batch in content.iter_batches(min(max(1, rows), _BATCH_ROWS), row_groups=[group]):
                    yield to_features(batch, file)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{file}: row group {group} cannot be read: {error}") from error


def _open(stream: Any, file: str) -> parquet.ParquetFile:
    try:
        # Spark, Hive and Impala write INT96. In nanoseconds, the default for it, years
        # such as 9999 would wrap.
        return parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} is not a Parquet file: {error}") from error


def describe_columns(schema: pa.Schema, file: str) -> dict[str, str]:
    """Describes how each column arrives in examples.

    The values are `integer`, `float`, `bytes` or `nothing`; for moments and durations,
    which become integers, pyarrow's name, such as `timestamp[us]`.
    """
    columns: dict[str, str] = {}
    for field in schema:
        if field.name in columns:
            raise DataError(f"{file}: two columns are called {field.name!r}; rename or remove one")
        if _PANDAS_INDEX.fullmatch(field.name):
            raise DataError(
                f"{file}: column {field.name!r} is the index of a pandas DataFrame; leave it out: "
                "to_parquet(..., index=False), or name it to keep it"
            )
        is_nested = _is_list(field.type) and _is_list(field.type.value_type)
        description = None if is_nested else _describe_type(field.type)
        if description is None:
            raise DataError(
                f"{file}: column {field.name!r} has the type {field.type}, which a tf.Example cannot hold; write its "
                "values as columns of numbers, strings or lists of these, or leave the column out"
            )
        columns[field.name] = description
    return columns


def _describe_difference(columns: Mapping[str, str], expected: Mapping[str, str]) -> str | None:
    if columns.keys() != expected.keys():
        return describe_difference([*columns], [*expected])
    for name, kind in columns.items():
        # A column with only nulls agrees with any type in another file.
        if NOTHING not in (kind, expected[name]) and kind != expected[name]:
            return f"column {name!r} holds {kind!r}, there it holds {expected[name]!r}"
    return None


def to_features(batch: pa.RecordBatch, file: str) -> pa.RecordBatch:
    """Converts a record batch to lists of int64, float32 or bytes.

    A null or an empty list becomes a null list, and a single value a list of one.
    """
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        try:
            arrays.append(_to_lists(array))
        except (DataError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(f"{file}: column {name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _is_list(column: pa.DataType) -> bool:
    return types.is_list(column) or types.is_large_list(column) or types.is_fixed_size_list(column)


def _describe_type(column: pa.DataType) -> str | None:
    """Describes how values of a type arrive; None if they cannot be converted."""
    if _is_list(column) or types.is_dictionary(column):
        return _describe_type(column.value_type)
    if types.is_null(column):
        return NOTHING
    if types.is_date(column):
        return "date"
    if types.is_timestamp(column):
        return str(pa.timestamp(column.unit, "UTC" if column.tz else None))
    if types.is_time(column) or types.is_duration(column):
        return str(column)
    if types.is_boolean(column) or types.is_integer(column) or (types.is_decimal(column) and column.scale <= 0):
        return INTEGER
    if types.is_float32(column) or types.is_float64(column) or types.is_decimal(column):
        return FLOAT
    is_text = types.is_string(column) or types.is_large_string(column)
    is_binary = types.is_binary(column) or types.is_large_binary(column) or types.is_fixed_size_binary(column)
    return BYTES if is_text or is_binary else None


def _to_lists(array: pa.Array) -> pa.Array:
    if types.is_null(array.type):
        return pa.nulls(len(array))
    if _is_list(array.type):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        values, is_present = array.drop_null().flatten(), lengths > 0
        if values.null_count:
            raise DataError("a null inside a list, which a tf.Example cannot hold; remove or replace it")
    else:
        values, is_present = array.drop_null(), array.is_valid().to_numpy(zero_copy_only=False)
        lengths = is_present.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets, pa.int64(), mask=np.append(~is_present, False)),  # null offset: null list
        _cast(values),
    )


def _cast(values: pa.Array) -> pa.Array:
    """Casts values without nulls to a type that features can hold."""
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = _describe_type(values.type)
    if types.is_date(values.type):
        values = values.cast(pa.date32()).cast(pa.int32())
    elif types.is_time32(values.type):
        values = values.cast(pa.int32())
    elif types.is_decimal(values.type) and kind == FLOAT:
        values = values.cast(pa.float64())
    cast = values.cast(_FEATURE_TYPES.get(kind or NOTHING, pa.int64()))
    if kind == FLOAT:
        too_large = values.filter(pc.and_(pc.is_inf(cast), pc.invert(pc.is_inf(values))))
        if too_large:
            raise DataError(f"{too_large[0]} {BEYOND_FLOAT32}")
    return cast

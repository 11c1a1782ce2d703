"""Reads Parquet files as columns of the three kinds that a tf.Example has.

They are int64, float32 and bytes. Only nulls are missing values. Imports neither
TensorFlow nor TFX, so that `validate` can use it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet, types

from tfx_distribute.components.example_gen.names import BEYOND_FLOAT32
from tfx_distribute.trainer_module.errors import DataError

# Limits of a record batch.
_BATCH_ROWS, _BATCH_BYTES = 10_000, 4 << 20

INTEGER, FLOAT, BYTES, NOTHING = "integer", "float", "bytes", "nothing"

_FEATURE_TYPES = {INTEGER: pa.int64(), FLOAT: pa.float32(), BYTES: pa.large_binary()}
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # an index without a name
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def inspect(files: Sequence[str], open_file: Callable[[str], Any]) -> dict[str, str]:
    """Reads the footers of files, and checks that they have the same columns.

    Args:
      files: The files.
      open_file: Opens a file for reading bytes.

    Returns:
      How each column arrives in examples, see `describe_columns`.

    Raises:
      DataError: A file is not Parquet, a column cannot be converted, two files differ,
        or there are no rows.
    """
    first: dict[str, str] = {}
    num_rows = 0
    for file in files:
        with open_file(file) as stream:
            content = _open(stream, file)
            columns = describe_columns(content.schema_arrow, file)
            num_rows += content.metadata.num_rows
        if first and (difference := _describe_difference(columns, first)):
            raise DataError(f"the columns of {file} are not those of {files[0]}: {difference}")
        # A column without a type so far takes the type that it has in this file.
        first = {name: columns[name] if kind == NOTHING else kind for name, kind in first.items()} or columns
    if not num_rows:
        raise DataError(f"there are no rows in {', '.join(files)}")
    return first


def read(stream: Any, file: str, number: int, num_parts: int) -> Iterator[pa.RecordBatch]:
    """Reads every `num_parts`-th row group of a file, see `to_features`.

    Args:
      stream: The open file.
      file: Its name, for messages.
      number: Number of the first row group to read.
      num_parts: Number of parts that read the file.

    Raises:
      DataError: The file is damaged, or a value does not fit.
    """
    content = _open(stream, file)
    for group in range(number, content.num_row_groups, num_parts):
        metadata = content.metadata.row_group(group)
        rows = _BATCH_BYTES * metadata.num_rows // max(1, metadata.total_byte_size)
        batches = content.iter_batches(min(max(1, rows), _BATCH_ROWS), row_groups=[group])
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                break
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{file}: row group {group} cannot be read: {error}") from error
            yield to_features(batch, file)


def _open(stream: Any, file: str) -> parquet.ParquetFile:
    try:
        # Spark, Hive and Impala write INT96. In nanoseconds, the default for it, years
        # such as 9999 would wrap.
        return parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} is not a Parquet file: {error}") from error


def describe_columns(schema: pa.Schema, file: str) -> dict[str, str]:
    """Describes how each column arrives in examples.

    Args:
      schema: Schema of a file.
      file: Name of the file, for messages.

    Returns:
      Column name -> description, such as
      `{"x": "float", "day": "integer: days since 1970-01-01"}`.

    Raises:
      DataError: A column cannot be converted, two have the same name, or one is an
        unnamed pandas index. The message names file and column.
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
        description = _describe_type(field.type)
        if description is None:
            raise DataError(
                f"{file}: column {field.name!r} has the type {field.type}, which a tf.Example cannot hold; write its "
                "values as columns of numbers, strings or lists of these, or leave the column out"
            )
        columns[field.name] = description
    return columns


def _describe_difference(columns: Mapping[str, str], expected: Mapping[str, str]) -> str | None:
    missing = [name for name in expected if name not in columns]
    extra = [name for name in columns if name not in expected]
    if missing or extra:
        parts = [f"it lacks {', '.join(missing)}"] * bool(missing) + [f"it adds {', '.join(extra)}"] * bool(extra)
        return " and ".join(parts)
    for name, kind in columns.items():
        # A column with only nulls agrees with any type in another file.
        if NOTHING not in (kind, expected[name]) and kind != expected[name]:
            return f"column {name!r} holds {kind!r}, there it holds {expected[name]!r}"
    return None


def to_features(batch: pa.RecordBatch, file: str) -> pa.RecordBatch:
    """Converts a record batch to lists of int64, float32 or bytes.

    A null becomes a null list, and a single value becomes a list of one.

    Args:
      batch: Rows of the file.
      file: Name of the file, for messages.

    Raises:
      DataError: A value does not fit. The message names file and column.
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
    if _is_list(column):
        return None if _is_list(column.value_type) else _describe_type(column.value_type)
    if types.is_dictionary(column):
        return _describe_type(column.value_type)
    if types.is_null(column):
        return NOTHING
    if types.is_date(column):
        return f"{INTEGER}: days since 1970-01-01"
    if types.is_timestamp(column):
        zone = "UTC" if column.tz else "no time zone"
        return f"{INTEGER}: {_unit(column)} since 1970-01-01, {zone}"
    if types.is_time(column):
        return f"{INTEGER}: {_unit(column)} since midnight"
    if types.is_duration(column):
        return f"{INTEGER}: {_unit(column)}"
    if types.is_boolean(column) or types.is_integer(column) or (types.is_decimal(column) and column.scale <= 0):
        return INTEGER
    if types.is_float32(column) or types.is_float64(column) or types.is_decimal(column):
        return FLOAT
    if types.is_string(column) or types.is_large_string(column):
        return BYTES
    if types.is_binary(column) or types.is_large_binary(column) or types.is_fixed_size_binary(column):
        return BYTES
    return None


def _unit(column: pa.DataType) -> str:
    # Not all of these types have an attribute `unit`.
    (unit,) = re.findall(r"\[(\w+)", str(column))
    return _UNITS[unit]


def _to_lists(array: pa.Array) -> pa.Array:
    if types.is_null(array.type):
        return pa.nulls(len(array), pa.large_list(pa.int64()))
    present = array.drop_null()
    if _is_list(array.type):
        counts = pc.list_value_length(present).to_numpy(zero_copy_only=False)
        values = present.flatten()
        if values.null_count:
            raise DataError("a null inside a list, which a tf.Example cannot hold; remove or replace it")
    else:
        counts = np.ones(len(present), np.int64)
        values = present
    lengths = np.zeros(len(array), np.int64)
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    lengths[~is_null] = counts
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets, pa.int64(), mask=np.append(is_null, False)),  # null offset: null list
        _cast(values),
    )


def _cast(values: pa.Array) -> pa.Array:
    """Casts values to a type that features can hold.

    Args:
      values: Values without nulls.

    Raises:
      pa.ArrowInvalid: An integer does not fit.
      DataError: A finite float does not fit.
    """
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_null(values.type):
        return values.cast(pa.int64())
    kind = (_describe_type(values.type) or "").partition(":")[0]
    if types.is_date(values.type):
        values = values.cast(pa.date32()).cast(pa.int32())
    elif types.is_time32(values.type):
        values = values.cast(pa.int32())
    if kind != FLOAT:
        return values.cast(_FEATURE_TYPES[kind])
    if types.is_decimal(values.type):
        values = values.cast(pa.float64())
    rounded = values.cast(pa.float32())
    too_large = pc.and_(pc.is_inf(rounded), pc.invert(pc.is_inf(values)))
    if pc.any(too_large).as_py():
        value = values.filter(too_large)[0].as_py()
        raise DataError(f"{value} {BEYOND_FLOAT32}")
    return rounded

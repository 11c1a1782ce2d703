"""Inspects the footers of Parquet files: their columns, and their row groups.

Imports neither TensorFlow nor TFX, so that `validate` can use it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tfx_distribute.components.example_gen import parquet_columns
from tfx_distribute.trainer_module.errors import DataError


@dataclass(frozen=True)
class RowGroup:
    """A part of a Parquet file that can be read by itself.

    Attributes:
      file: The file.
      number: Number of the row group, from 0.
    """

    file: str
    number: int


def inspect(files: Sequence[str], open_file: Callable[[str], Any]) -> tuple[dict[str, str], list[RowGroup]]:
    """Reads the footers of files.

    Args:
      files: The files of one split.
      open_file: Opens a file for reading bytes.

    Returns:
      How each column arrives (see `parquet_columns.meanings`), and the row groups of
      all files.

    Raises:
      DataError: A file is not Parquet, a column cannot be converted, two files differ,
        or there are no rows.
    """
    first: dict[str, str] = {}
    groups = []
    num_rows = 0
    for file in files:
        with open_file(file) as stream:
            content = open_parquet(stream, file)
            columns = parquet_columns.meanings(content.schema_arrow, file)
            groups += [RowGroup(file, number) for number in range(content.num_row_groups)]
            num_rows += content.metadata.num_rows
        if first and (difference := parquet_columns.difference(columns, first)):
            raise DataError(f"the columns of {file} are not those of {files[0]}: {difference}")
        # A column that has no type yet takes that of the next file.
        first = {name: columns[name] if meaning == parquet_columns.NOTHING else meaning for name, meaning in first.items()}
        first = first or columns
    if not num_rows:
        raise DataError(f"there are no rows in {', '.join(files)}")
    return first, groups


def open_parquet(stream: Any, file: str) -> parquet.ParquetFile:
    """Opens a Parquet file.

    Args:
      stream: The open file.
      file: Its name, for messages.

    Raises:
      DataError: It is not a Parquet file.
    """
    try:
        # Spark, Hive and Impala write INT96; in nanoseconds, its default, years such as 9999 would wrap.
        return parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} is not a Parquet file: {error}") from error

"""Inspects the footers of Parquet files: their columns and row groups.

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
    """A part of a Parquet file that can be read on its own.

    Attributes:
      file: The file.
      number: Number of the row group, from 0.
    """

    file: str
    number: int


def inspect(files: Sequence[str], open_file: Callable[[str], Any]) -> tuple[dict[str, str], list[RowGroup]]:
    """Reads the footers of files.

    Args:
      files: The files.
      open_file: Opens a file for reading bytes.

    Returns:
      How each column arrives (see `parquet_columns.describe_columns`), and the row
      groups of all files.

    Raises:
      DataError: A file is not Parquet, a column cannot be converted, two files differ,
        or there are no rows.
    """
    first: dict[str, str] = {}
    row_groups = []
    num_rows = 0
    for file in files:
        with open_file(file) as stream:
            content = open_parquet(stream, file)
            columns = parquet_columns.describe_columns(content.schema_arrow, file)
            row_groups += [RowGroup(file, number) for number in range(content.num_row_groups)]
            num_rows += content.metadata.num_rows
        if first and (difference := parquet_columns.describe_difference(columns, first)):
            raise DataError(f"the columns of {file} are not those of {files[0]}: {difference}")
        # A column without a type so far takes the type that it has in this file.
        first = {
            name: columns[name] if description == parquet_columns.NOTHING else description
            for name, description in first.items()
        }
        first = first or columns
    if not num_rows:
        raise DataError(f"there are no rows in {', '.join(files)}")
    return first, row_groups


def open_parquet(stream: Any, file: str) -> parquet.ParquetFile:
    """Opens a Parquet file.

    Args:
      stream: The open file.
      file: Its name, for messages.

    Raises:
      DataError: The file is not a Parquet file.
    """
    try:
        # Spark, Hive and Impala write INT96. In nanoseconds, the default for it, years
        # such as 9999 would wrap.
        return parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} is not a Parquet file: {error}") from error

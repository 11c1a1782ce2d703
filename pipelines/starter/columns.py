"""Reads the columns of data files, to choose a first model for them."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfx_distribute.components.example_gen import csv_rows
from tfx_distribute.components.example_gen.files import open_file
from tfx_distribute.trainer_module.errors import DataError

MAX_ROWS = 100_000


@dataclass(frozen=True)
class Column:
    """A column of the data.

    Attributes:
      values: A value for each row: an int, a float, a str, or bytes that are not text;
        a tuple where a row has several, None where it has none.
      is_moment: True if the integers stand for moments.
    """

    name: str
    values: Sequence[Any]
    is_moment: bool = False

    @property
    def present(self) -> list[Any]:
        """Returns the values without gaps, which are None or NaN."""
        return [value for value in self.values if value is not None and value == value]

    @property
    def has_gaps(self) -> bool:
        """Returns True if a row has no value."""
        return len(self.present) < len(self.values)


def read(source: str, files: Sequence[str]) -> list[Column]:
    """Reads the first rows of CSV or Parquet files, with the types of examples."""
    return (_read_csv if source == "csv" else _read_parquet)(files)


def _read_csv(files: Sequence[str]) -> list[Column]:
    names = csv_rows.list_columns(files)
    rows: list[list[str]] = []
    for file in files:
        with open_file(file) as stream:
            numbered = itertools.islice(csv_rows.read(stream, file)[1], MAX_ROWS - len(rows))
            rows += [cells for _, cells in numbered]
    if not rows:
        raise DataError(f"{files[0]} has a header but no rows")
    return [Column(name, _parse(cells)) for name, cells in zip(names, zip(*rows, strict=True), strict=True)]


def _parse(cells: Sequence[str]) -> list[Any]:
    """Converts cells to the type that the whole column has in examples."""
    for number_type in (int, float):
        try:
            values = [number_type(cell) if cell else None for cell in cells]
        except ValueError:
            continue
        if number_type is int and any(value is not None and abs(value) >= 2**63 for value in values):
            break
        return values
    return [cell or None for cell in cells]


def _read_parquet(files: Sequence[str]) -> list[Column]:
    from tfx_distribute.components.example_gen import parquet_columns  # loads pyarrow

    kinds = parquet_columns.inspect(files)
    values: dict[str, list[Any]] = {name: [] for name in kinds}
    rows = 0
    for batch in itertools.chain.from_iterable(parquet_columns.read(file, 0, 1) for file in files):
        for name, lists in zip(batch.schema.names, batch.columns, strict=True):
            values[name] += map(_to_value, lists.to_pylist())
        rows += len(batch)
        if rows >= MAX_ROWS:
            break
    return [Column(name, values[name], kind.startswith(("date", "timestamp"))) for name, kind in kinds.items()]


def _to_value(values: Iterable[Any] | None) -> Any:
    """Converts the values of a feature: one, a tuple of several, or None."""
    converted = tuple(_to_text(value) if isinstance(value, bytes) else value for value in values or ())
    return converted if len(converted) > 1 else converted[0] if converted else None


def _to_text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value

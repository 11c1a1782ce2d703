"""Chooses a first model for the columns of a table: what it predicts, and from what."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfx_distribute.components.example_gen import csv_rows
from tfx_distribute.components.example_gen.files import open_file
from tfx_distribute.trainer_module.errors import ConfigurationError

MAX_ROWS = 100_000  # to read
MAX_CLASSES = 20  # of a label of integers; with more, it is a quantity
MIN_WORDS = 3  # of the average text that is read word by word

# A day with or without a time, year first or last.
_MOMENT = re.compile(r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3\d{4})([T ]+\d\d?:\d\d.*)?")
_ID = re.compile(r"(.*[\W_])?(id|Id|ID)|.*[a-z](Id|ID)")


@dataclass(frozen=True)
class Column:
    """A column of the data.

    Attributes:
      values: A value for each row: an int, a float, a str, or bytes that are not text;
        a tuple where a row has several, None where it has none.
      is_moment: True if the values stand for moments.
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
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return [Column(name, _parse(cells), _are_moments(cells)) for name, cells in columns]


def _are_moments(cells: Sequence[str]) -> bool:
    present = [cell.strip() for cell in cells if cell]
    return bool(present) and all(map(_MOMENT.fullmatch, present))


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


@dataclass(frozen=True)
class FirstModel:
    """A first model.

    Attributes:
      label: The column that it predicts.
      classes: Value of the label -> its rows; empty if the label is a quantity.
      numbers: Columns to scale.
      categories: Columns of texts that repeat.
      texts: Columns of texts to read word by word.
      left_out: Name of a column that it does not read -> why.
    """

    label: Column
    classes: Counter[Any]
    numbers: list[Column] = field(default_factory=list)
    categories: list[Column] = field(default_factory=list)
    texts: list[Column] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Column]:
        """Returns the columns that it reads."""
        return [*self.numbers, *self.categories, *self.texts]


def choose(columns: Sequence[Column], label: str) -> FirstModel:
    """Chooses a first model, which predicts the column `label`.

    Raises a ConfigurationError if there is none, or no other column can predict it.
    """
    by_name = {column.name: column for column in columns}
    if label not in by_name:
        raise ConfigurationError(f"--label {label}: there is no such column; write one of {', '.join(by_name)}")
    if problem := _find_label_problem(by_name[label]):
        raise ConfigurationError(f"--label {label}: {problem}")
    model = FirstModel(by_name[label], _count_classes(by_name[label]))
    for column in columns:
        if column is model.label:
            continue
        if problem := _find_problem(column) or _find_identifier(column):
            model.left_out[column.name] = problem
        elif not isinstance(column.present[0], str):
            model.numbers.append(column)
        else:
            (model.categories if _repeats(column) else model.texts).append(column)
    if not model.inputs:
        reasons = "".join(f"; {name}: {reason}" for name, reason in model.left_out.items())
        raise ConfigurationError(f"--label {label}: there is no column to predict it from; add one to the data{reasons}")
    return model


def _find_label_problem(label: Column) -> str:
    """Returns why a column cannot be predicted; empty if it can."""
    values = label.present
    if problem := _find_problem(label):
        return f"{problem}; name another column"
    if any(value != value for value in label.values):  # other gaps are left out by `data.require`
        return "a row has NaN; remove such rows, or leave their values out"
    if isinstance(values[0], tuple):
        return "its rows have several values; name a column with one"
    if isinstance(values[0], str) and not _repeats(label):
        return "nearly every row has a text of its own; name a column whose values repeat, or one of numbers"
    if rare := [value for value, rows in _count_classes(label).items() if rows == 1]:
        return f"{rare[0]!r} is in one row only, and cannot be trained and evaluated on; remove the row"
    return ""


def _count_classes(label: Column) -> Counter[Any]:
    rows = Counter(label.present)
    is_quantity = isinstance(label.present[0], float) or (isinstance(label.present[0], int) and len(rows) > MAX_CLASSES)
    return Counter() if is_quantity else rows


def _find_problem(column: Column) -> str:
    """Returns why a model cannot use a column; empty if it can."""
    values = column.present
    if not values:
        return "it is empty"
    if column.is_moment:
        return "it holds moments; compute what counts, such as the hour, in preprocessing_fn"
    if any(isinstance(value, bytes) for value in values):
        return "it holds bytes that are not text"
    lengths = {len(value) if isinstance(value, tuple) else 1 for value in column.values}
    if lengths != {1} and (len(lengths) > 1 or not isinstance(values[0][0], int | float)):
        return "its rows have several values"
    if len(set(values)) == 1 and not (column.has_gaps and isinstance(values[0], str)):
        return "every row has the same value"
    return ""


def _find_identifier(column: Column) -> str:
    """Returns why a column only tells rows apart; empty if it says more."""
    values = column.present
    if isinstance(values[0], str):
        is_text = sum(len(value.split()) for value in values) >= MIN_WORDS * len(values)
        return "" if is_text or _repeats(column) else "nearly every row has a text of its own"
    if isinstance(values[0], int) and len(set(values)) == len(values):
        is_counter = max(values) - min(values) == len(values) - 1
        return "it numbers the rows" if is_counter or _ID.fullmatch(column.name) else ""
    return ""


def _repeats(column: Column) -> bool:
    return 2 * len(set(column.present)) <= len(column.present)

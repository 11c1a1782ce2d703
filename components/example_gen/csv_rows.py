"""Reads CSV files row by row, and refuses files that it would have to guess at.

A file is UTF-8 text with commas and a header, as in RFC 4180: a quoted cell may hold
commas, line breaks and doubled quotes. A byte order mark and Windows line endings are
accepted, blank lines are skipped. Imports nothing heavy.
"""

import codecs
import csv
import re
from collections.abc import Iterable, Iterator, Sequence

from tfx_distribute.components.example_gen.files import open_file
from tfx_distribute.components.example_gen.names import DifferentColumnsError, describe_difference
from tfx_distribute.trainer_module.errors import DataError

# Keeps a quote that is never closed from reading the whole file into memory.
MAX_CELL_CHARS = 64 << 20

Row = tuple[int, list[str]]  # the line that a row starts on, from 1, and its cells


def read(stream: Iterable[bytes], file: str) -> tuple[list[str], Iterator[Row]]:
    """Returns the column names of a CSV file, and its rows: a cell for each column."""
    rows = read_rows(stream, file)
    line, columns = next(rows, (0, []))
    if not columns:
        raise DataError(f"{file} is empty; write a header line with the names of the columns")
    _check_header(columns, f"{file}, line {line}")
    return columns, rows


def read_rows(stream: Iterable[bytes], file: str, first_line: int = 1, width: int | None = None) -> Iterator[Row]:
    """Reads rows from the lines of a file from `first_line` on.

    Each has `width` cells, by default as many as the first one, which is the header.
    """
    csv.field_size_limit(MAX_CELL_CHARS)
    reader = csv.reader(_text(stream, file, first_line), strict=True)
    while True:
        line = reader.line_num + first_line
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"cannot read {file} as CSV: line {line}: {error}") from error
        if not cells:
            continue
        width = width or len(cells)
        if len(cells) != width:
            raise DataError(
                f"{file}, line {line}: the number of cells is {len(cells)}, but the header names {width} columns; quote "
                "cells that contain commas"
            )
        yield line, cells


def list_columns(files: Sequence[str], may_differ: bool = False) -> list[str]:
    """Returns the column names of the files of a split.

    Unless `may_differ`, all files have to have the same columns, and at least one row:
    a file without rows may be left from a failed export. If they may differ, the names
    of all files are joined.
    """
    first: list[str] = []
    for file in files:
        with open_file(file) as stream:
            columns, rows = read(stream, file)
            is_empty = next(rows, None) is None
        first = first or columns
        if may_differ and {*columns} & {*first}:
            first = [*dict.fromkeys([*first, *columns])]
        elif columns != first:
            difference = describe_difference(columns, first)
            hint = "" if {*columns} & {*first} else "; each file needs the header line"
            raise DifferentColumnsError(f"the columns of {file} are not those of {files[0]}: {difference}{hint}")
        if is_empty and not may_differ:
            hint = "" if len(files) == 1 else "; remove it, or, for one of several spans, write data.missing: skip"
            raise DataError(f"{file} has a header but no rows{hint}")
    return first


def _text(stream: Iterable[bytes], file: str, first_line: int) -> Iterator[str]:
    for number, line in enumerate(stream, first_line):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if b"\0" in line:  # which Python >= 3.11 takes for a character like any other
            raise DataError(f"cannot read {file} as CSV: line {number}: line contains NUL; convert it to UTF-8")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"cannot read {file} as CSV in UTF-8: line {number}: {error}; convert it to UTF-8") from error


def _check_header(columns: Sequence[str], place: str) -> None:
    for number, name in enumerate(columns, 1):
        if not name.strip():
            raise DataError(
                f"{place}: column {number} has no name; name or remove it (pandas writes its index there: "
                "to_csv(..., index=False))"
            )
        if name in columns[: number - 1]:
            raise DataError(f"{place}: two columns are called {name!r}; rename or remove one")
    if len(columns) == 1 and (delimiter := re.search(r"[;\t|]", columns[0])):
        raise DataError(f"{place}: the columns are separated by {delimiter[0]!r}; separate them by commas")

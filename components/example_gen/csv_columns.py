"""Reads CSV files column by column, with TFX's rules for column types.

pyarrow parses blocks of whole rows. Where it is less strict than `csv_rows`, or reads a
number in another way than Python, Python reads the block or the cells instead. It also
knows the line of a mistake.
"""

import codecs
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from tfx_bsl.coders.csv_decoder import ColumnType, ColumnTypeInferrer

from tfx_distribute.components.example_gen import csv_rows
from tfx_distribute.components.example_gen.files import open_file
from tfx_distribute.components.example_gen.names import BEYOND_FLOAT32
from tfx_distribute.trainer_module.errors import DataError

_BLOCK_BYTES = 16 << 20
# Limits of a record batch, whose examples take several times as many bytes as its text.
_BATCH_ROWS, _BATCH_BYTES = 10_000, 4 << 20

# A cell that starts with a quote, up to its closing one or the end of the block.
_QUOTED = re.compile(rb'"(?<![^,\r\n]")[^"]*(?:""[^"]*)*(?:"|\Z)')
_LONE_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
# Texts of these characters that pyarrow takes for numbers, Python reads as the same.
_PLAIN = {pa.int64(): b"0123456789-", pa.float64(): b"0123456789+-.eEnNaAiIfFtTyY"}
_INFERRER = ColumnTypeInferrer(["cell"], skip_blank_lines=True)

Types = Mapping[str, ColumnType]


def read_types(file: str, number: int, num_parts: int) -> Types:
    """Infers the types of columns from every `num_parts`-th block, from `number` on."""
    types: dict[str, ColumnType] = {}
    for block in itertools.islice(_blocks(file), number, None, num_parts):
        for name, cells in block.columns().items():
            known = types.get(name, ColumnType.UNKNOWN)
            types[name] = known if known == ColumnType.STRING else max(known, _column_type(cells))
    return types


def merge_types(types: Iterable[Types]) -> Types:
    """Merges what `read_types` found in different parts of the data."""
    return dict(_INFERRER.merge_accumulators(types))


def as_in_schema(types: Types, schema: Mapping[str, str]) -> Types:
    """Returns the types of columns, where possible those of a curated schema.

    So a column of floats stays one on a day of whole numbers, and postal codes are
    texts. What does not fit is left to ExampleValidator.
    """
    wanted = {"INT": ColumnType.INT, "FLOAT": ColumnType.FLOAT, "BYTES": ColumnType.STRING}
    return {name: max(found, wanted.get(schema.get(name, ""), found)) for name, found in types.items()}


def read(file: str, number: int, num_parts: int, types: Types) -> Iterator[pa.RecordBatch]:
    """Reads every `num_parts`-th block of a file as lists of int64, float32 or bytes.

    The first one is block `number`, counted from 0. An empty cell becomes an empty
    list: it has a type but no value, as in TFX.
    """
    for block in itertools.islice(_blocks(file), number, None, num_parts):
        rows = pa.RecordBatch.from_pydict(block.columns())
        batch_rows = min(max(1, _BATCH_BYTES * len(rows) // max(1, len(block.content))), _BATCH_ROWS)
        for first in range(0, len(rows), batch_rows):
            batch = rows[first : first + batch_rows]
            lists = [
                _to_lists(f"{file}: column {name!r}", cells, types[name])
                for name, cells in zip(block.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(lists, block.names)


@dataclass(frozen=True)
class _Block:
    """Whole rows of a file; the first block starts with the header."""

    file: str
    names: list[str]
    first_line: int
    content: bytes

    def columns(self) -> dict[str, pa.Array]:
        """Returns the cells of each column as text, without the header."""
        try:
            columns = self._parse() if _is_strict(self.content) else self._parse_strictly()
        except pa.ArrowInvalid:
            columns = self._parse_strictly()
        first_row = int(self.first_line == 1)
        return {name: column[first_row:] for name, column in zip(self.names, columns, strict=True)}

    def _parse(self) -> list[pa.Array]:
        table = csv.read_csv(
            pa.BufferReader(self.content),
            csv.ReadOptions(use_threads=False, block_size=len(self.content) + 1, column_names=self.names),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(column_types=dict.fromkeys(self.names, pa.string())),
        )
        return [column.combine_chunks() for column in table.columns]

    def _parse_strictly(self) -> list[pa.Array]:
        rows = csv_rows.read_rows(io.BytesIO(self.content), self.file, self.first_line, len(self.names))
        columns = list(zip(*(cells for _, cells in rows), strict=True)) or [()] * len(self.names)
        return [pa.array(column, pa.string()) for column in columns]


def _blocks(file: str) -> Iterator[_Block]:
    with open_file(file) as stream:
        names, _ = csv_rows.read(stream, file)
    with open_file(file) as stream:
        line, content = 1, stream.read(_BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
        while more := stream.read(_BLOCK_BYTES):
            end = _end_of_rows(content)
            if not end and len(content) > csv_rows.MAX_CELL_CHARS:
                end = len(content)  # a quote is never closed, which `csv_rows` refuses
            if end:
                yield _Block(file, names, line, content[:end])
                line += content.count(b"\n", 0, end)
            content = content[end:] + more
        yield _Block(file, names, line, content)


def _end_of_rows(content: bytes) -> int:
    """Returns where the last whole row ends, or 0."""
    end = len(content)
    for start, stop in reversed([cell.span() for cell in _QUOTED.finditer(content)]):
        if (newline := content.rfind(b"\n", stop, end)) >= 0:
            return newline + 1
        end = start
    return content.rfind(b"\n", 0, end) + 1


def _is_strict(content: bytes) -> bool:
    """Returns True if pyarrow reads everything in the same way as Python."""
    return not (
        b"\0" in content
        or content.startswith(codecs.BOM_UTF8)
        or _LONE_CARRIAGE_RETURN.search(content)
        or any(content[cell.end() : cell.end() + 1] not in (b",", b"\r", b"\n") for cell in _QUOTED.finditer(content))
    )


def _column_type(cells: pa.Array) -> ColumnType:
    values = cells.filter(pc.not_equal(cells, ""))
    if not values:
        return ColumnType.UNKNOWN
    if _cast(values, pa.int64()):
        return ColumnType.INT
    # Newer versions of pyarrow take +5 for a float only.
    numbers = None if _has_only(values, b"0123456789+-") else _cast(values, pa.float64())
    # Integers beyond int64 make a column of texts; numbers such as 1e20 do not.
    if numbers and not pc.any(pc.greater_equal(pc.abs(numbers), 2.0**63)).as_py():
        return ColumnType.FLOAT
    types: dict[str, ColumnType] = {}
    for value in values.unique():
        types = _INFERRER.add_input(types, [value.as_py().encode()])
        if types["cell"] == ColumnType.STRING:
            break
    return types["cell"]


def _cast(values: pa.Array, number_type: pa.DataType) -> pa.Array | None:
    """Parses texts as numbers; None if Python has to do it."""
    if not _has_only(values, _PLAIN[number_type]):
        return None
    try:
        return values.cast(number_type)
    except pa.ArrowInvalid:
        return None


def _has_only(values: pa.Array, characters: bytes) -> bool:
    return not values.buffers()[2].to_pybytes().translate(None, characters)


def _to_lists(place: str, cells: pa.Array, column_type: ColumnType) -> pa.Array:
    if column_type == ColumnType.UNKNOWN:
        return pa.nulls(len(cells))
    is_present = pc.not_equal(cells, "")
    values = cells.filter(is_present)
    if column_type == ColumnType.STRING:
        values = values.cast(pa.large_binary())
    elif column_type == ColumnType.INT:
        values = _cast(values, pa.int64()) or pa.array(map(int, values.to_pylist()), pa.int64())
    else:
        values = _to_float32(place, values)
    offsets = np.concatenate([[0], np.cumsum(is_present.to_numpy(zero_copy_only=False))])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def _to_float32(place: str, values: pa.Array) -> pa.Array:
    numbers = _cast(values, pa.float64()) or pa.array(map(float, values.to_pylist()), pa.float64())
    rounded = numbers.cast(pa.float32())
    infinite = values.filter(pc.is_inf(rounded))
    too_large = infinite.filter(pc.invert(pc.match_substring(infinite, "inf", ignore_case=True)))
    if too_large:
        raise DataError(f"{place}: {too_large[0]} {BEYOND_FLOAT32}")
    return rounded

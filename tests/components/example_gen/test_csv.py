"""Compares the examples of CSV files value by value."""

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from ingestion import resolved, rows

from tfx_distribute.components.example_encoder import encode
from tfx_distribute.components.example_gen import csv_columns, csv_rows
from tfx_distribute.components.example_gen.driver import read_column_types
from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.trainer_module.errors import DataError

MIN, MAX = -(2**63), 2**63 - 1
INF, NAN = float("inf"), float("nan")

# Column -> its cells, each with the values it becomes: the table in docs/data.md.
CELLS = {
    "integer": [("0", [0]), ("", None), ("007", [7]), (f"{MIN}", [MIN]), (f"{MAX}", [MAX]), ("1_000", [1000])],
    "float": [("0", [0.0]), ("", None), ("NaN", [NAN]), ("-inf", [-INF]), ("1e3", [1000.0]), ("007", [7.0])],
    "infinite": [("inf", [INF]), (" +Infinity", [INF]), ("-INF", [-INF])],
    "too_long": [(f"{MAX + 1}", [b"9223372036854775808"]), ("0", [b"0"]), ("", None)],
    "flag": [("false", [b"false"]), ("True", [b"True"]), ("0", [b"0"]), ("", None)],
    "text": [("", None), ('""', None), (" ", [b" "]), ("NA", [b"NA"]), ("null", [b"null"]), ("Zoë ☃", ["Zoë ☃".encode()])],
    "spaces": [(" 7", [7]), ("8 ", [8]), ('" 0 "', [0])],
    "fullwidth": [("\uff11", ["\uff11".encode()]), ("1", [b"1"])],
    "quoted": [('"0"', [0]), ('""', None), ("2", [2])],
    "lines": [
        ('"a\nb"', [b"a\nb"]),
        ('"a\r\nb"', [b"a\r\nb"]),
        ('"a,b"', [b"a,b"]),
        ('"a""b"', [b'a"b']),
        ("a'b", [b"a'b"]),
    ],
    "nothing": [("", None)],
}


def test_each_cell_arrives_as_documented(tmp_path):
    cells = {name: (found + [("", None)] * 6)[:6] for name, found in CELLS.items()}
    lines = [",".join([str(row), *(found[row][0] for found in cells.values())]) for row in range(6)]
    (tmp_path / "a.csv").write_bytes("\n".join([",".join(["id", *CELLS]), *lines]).encode())
    arrived = sorted(rows(Data(csv=str(tmp_path / "a.csv")), tmp_path / "out"), key=lambda row: row["id"])
    for name, found in cells.items():
        assert str([row[name] for row in arrived]) == str([values for _, values in found]), name


def test_quoted_header_byte_order_mark_and_windows_lines(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf"x, in m","y"\r\n\r\n1,2\r\n3,4\r\n\r\n')
    (tmp_path / "b.csv").write_bytes(b'"x, in m",y\n5,6')
    found = rows(Data(csv=str(tmp_path), splits={"train": 1}), tmp_path / "out")
    assert sorted(found, key=str) == [{"x, in m": [x], "y": [x + 1]} for x in (1, 3, 5)]


@pytest.mark.parametrize("number", ["1e39", "-1e400", "12e4567"])
def test_number_that_float32_cannot_hold(tmp_path, number):
    (tmp_path / "a.csv").write_text(f"x,y\n1,1e38\n2,{number}\n")
    with pytest.raises(DataError, match=rf"a\.csv: column 'y': {number} is beyond the range of float32"):
        rows(Data(csv=str(tmp_path / "a.csv")), tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.csv is empty"),
        (b"\n\n", "a.csv is empty"),
        (b"x,y,x\n1,2,3\n", "a.csv, line 1: two columns are called 'x'"),
        (b",x\n0,1\n", "a.csv, line 1: column 1 has no name"),
        (b"x;y\n1;2\n", "a.csv, line 1: the columns are separated by ';'; separate them by commas"),
        (b"x\ty\n1\t2\n", r"separated by '\\t'"),
        (b"x,y\n1,2\n1\n", "a.csv, line 3: the number of cells is 1, but the header names 2 columns"),
        (b'x,y\n"1\n",2\n1,2,3\n', "a.csv, line 4: the number of cells is 3"),
        (b'x,y\n1,2\n3,"4\n5,6\n', "line 3: unexpected end of data"),
        (b'x,y\n1,"2"3\n', "line 2: ',' expected after"),
        (b"x,y\r1,2\r", "line 1: new-line character seen"),
        ("x,y\n1,ü\n".encode("latin-1"), "as CSV in UTF-8: line 2: "),
        (gzip.compress(b"x,y\n1,2\n", mtime=0), "line 1: .*; convert it to UTF-8"),
        ("x,y\n1,2\n".encode("utf-16-le"), "line 1: line contains NUL; convert it to UTF-8"),
        (b"x,y\n1,\x002\n", "line 2: line contains NUL"),
    ],
)
def test_content_that_is_refused(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        list(csv_rows.read(io.BytesIO(content), "a.csv")[1])
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        csv_columns.read_types(str(tmp_path / "a.csv"), 0, 1)


def test_long_cells_are_read():
    """Python's own limit is 131,072 characters."""
    content = b"x\n" + b"a" * 200_000 + b"\n"
    assert [len(cells[0]) for _, cells in csv_rows.read(io.BytesIO(content), "a.csv")[1]] == [200_000]


def read_by_columns(file: Path) -> list[bytes]:
    types = csv_columns.read_types(str(file), 0, 1)
    return [example for batch in csv_columns.read(str(file), 0, 1, types) for example in encode(batch)]


def read_by_rows(content: str) -> list[bytes]:
    """Returns the same examples as `read_by_columns`, with Python's csv module."""
    names, *found = [row for row in csv.reader(io.StringIO(content.removeprefix("\ufeff"), newline=""), strict=True) if row]
    kinds = [number_kind([row[number] for row in found]) for number in range(len(names))]
    examples = []
    for row in found:
        example = tf.train.Example()
        for name, kind, cell in zip(names, kinds, row, strict=True):
            values = [cell] * bool(cell)
            feature = example.features.feature[name]
            if kind is int:
                feature.int64_list.MergeFrom(tf.train.Int64List(value=map(int, values)))
            elif kind is float:
                feature.float_list.MergeFrom(tf.train.FloatList(value=map(float, values)))
            elif kind is str:
                feature.bytes_list.MergeFrom(tf.train.BytesList(value=[value.encode() for value in values]))
        examples.append(example.SerializeToString(deterministic=True))
    return examples


def number_kind(cells: Sequence[str]) -> type | None:
    """Returns the type of a column by TFX's rules; None if it has no values."""
    kind: type | None = None
    for value in (cell.encode() for cell in cells if cell):
        try:
            kind = kind or int
            if not MIN <= int(value) <= MAX:
                return str
        except ValueError:
            try:
                float(value)
                kind = float
            except ValueError:
                return str
    return kind


INTEGERS = ["0", "-7", "007", "-0", "1_000", " 7", "8\t", "+5", f"{MIN}", f"{MAX}"]
FLOATS = ["1e3", "-.5", "5.", "nan", "-NaN", "inf", " -Infinity ", "1e-50", "0.1", "1e20", "3.4028235e38", "1_0.5"]
TEXTS = [
    f"{MAX + 1}",
    "9" * 400,
    "0x1F",
    "1-2",
    "nan(1)",
    "NA",
    " ",
    "a,b",
    'a"b',
    '"',
    "a\nb",
    "a\r\nb",
    "a\rb",
    "Zoë\ufeff",
]


@st.composite
def files(draw):
    """Draws the text of a file, and the size of the blocks that it is read in."""
    alphabets = [[""], INTEGERS, FLOATS + INTEGERS, TEXTS + INTEGERS]
    columns = draw(st.lists(st.sampled_from(alphabets), min_size=2, max_size=3))
    table = draw(st.lists(st.tuples(*(st.sampled_from(["", *cells]) for cells in columns)), max_size=8))
    text = io.StringIO(newline="")
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    end = draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    if quoting == csv.QUOTE_MINIMAL and "\r" not in end:  # Python quotes only what is in `end`
        table = [[cell.replace("\r", "") for cell in row] for row in table]
    csv.writer(text, quoting=quoting, lineterminator=end).writerows([["c\n0", "c1", "c2"][: len(columns)], *table])
    content = draw(st.sampled_from(["", "\ufeff"])) + text.getvalue()
    if draw(st.booleans()):
        content = content.removesuffix(end)
    return content, draw(st.sampled_from([3, 13, 1 << 20]))


@settings(deadline=None)
@given(files())
def test_columns_are_what_rows_are(tmp_path_factory, file):
    content, block = file
    path = tmp_path_factory.getbasetemp() / "columns.csv"  # a new folder for each file takes long
    path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_columns, "_BLOCK_BYTES", block)
        assert read_by_columns(path) == read_by_rows(content)


@pytest.mark.parametrize(
    "content",
    [
        'x,y\n5" pipe,6" "pipe"\n7,"8, or ""9"""\n',
        'x\n""\n\n"a"\n \n',
        "x,y\n1,2\r\r\n3,4\r",
        'x,y\n"1","a\rb"\n2,\n',
        "x,y\n",
        "x\n\ufeffa\n\ufeffb",
        "x,y\n+5,+5\n7,1.5\n",
        "x,y\n" + "1,\n" * 50 + ",0.5\n" + "2,\n" * 50,
    ],
)
@pytest.mark.parametrize("block", [3, 13, 1 << 20])
def test_columns_are_what_rows_are_in_files_written_by_hand(tmp_path, monkeypatch, content, block):
    monkeypatch.setattr(csv_columns, "_BLOCK_BYTES", block)
    (tmp_path / "a.csv").write_bytes(content.encode())
    assert read_by_columns(tmp_path / "a.csv") == read_by_rows(content)


def test_parts_of_a_file_are_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_columns, "_BLOCK_BYTES", 64)
    file = tmp_path / "a.csv"
    file.write_text("x,y\n" + "".join(f'{number},"{number},\n"\n' for number in range(100)) + "0.5,\n")
    types = csv_columns.merge_types([csv_columns.read_types(str(file), number, 3) for number in range(3)])
    batches = [batch for number in range(3) for batch in csv_columns.read(str(file), number, 3, types)]
    assert len(batches) > 10
    assert sorted(row["x"][0] for batch in batches for row in batch.to_pylist()) == [0, 0.5, *range(1, 100)]


def test_columns_have_the_types_of_a_curated_schema(tmp_path):
    """A day of whole numbers, or without values, is not another type."""
    (tmp_path / "a.csv").write_text("minutes,zip,count,text,empty\n5,01234,2,1.5,\n7,8000,2.5,a,\n")
    types = {"minutes": "FLOAT", "zip": "BYTES", "count": "INT", "text": "FLOAT", "empty": "BYTES"}
    schema = "".join(f'feature {{ name: "{name}" type: {kind} }}\n' for name, kind in types.items())
    (tmp_path / "schema.pbtxt").write_text(schema)
    data = Data(csv=str(tmp_path / "a.csv"), schema_file=str(tmp_path / "schema.pbtxt"), splits={"train": 1})
    by_minutes = sorted(rows(data, tmp_path / "out"), key=lambda row: row["minutes"])
    assert [row["minutes"] for row in by_minutes] == [[5.0], [7.0]]
    assert [row["zip"] for row in by_minutes] == [[b"01234"], [b"8000"]]
    assert [row["count"] for row in by_minutes] == [[2.0], [2.5]], "which ExampleValidator refuses"
    assert [row["text"] for row in by_minutes] == [[b"1.5"], [b"a"]]
    assert [row["empty"] for row in by_minutes] == [None, None]
    assert all(isinstance(row["minutes"][0], float) for row in by_minutes)


def test_only_the_types_in_a_schema_change_the_cache_key(tmp_path):
    (tmp_path / "a.csv").write_text("x\n5\n")
    data = Data(csv=str(tmp_path / "a.csv"), schema_file=str(tmp_path / "schema.pbtxt"))
    keys = []
    for feature in ("type: FLOAT", "type: FLOAT presence { min_count: 1 }", "type: BYTES"):
        (tmp_path / "schema.pbtxt").write_text(f'feature {{ name: "x" {feature} }}')
        keys.append(resolved(data))
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]
    # Vertex AI has drivers of its own, which do not add the types.
    without_driver = {name: value for name, value in keys[2].items() if name != "column_types"}
    assert read_column_types(without_driver) == {"x": "BYTES"}

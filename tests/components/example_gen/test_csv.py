"""Compares the examples of CSV files value by value."""

import gzip
import io

import pytest
from ingestion import rows

from tfx_distribute.components.example_gen import csv_rows
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
    with pytest.raises(DataError, match=rf"a\.csv, line 3: column 'y': {number} is beyond the range of float32"):
        rows(Data(csv=str(tmp_path / "a.csv")), tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.csv is empty"),
        (b"\n\n", "a.csv is empty"),
        (b"x,y,x\n1,2,3\n", "a.csv, line 1: two columns are called 'x'"),
        (b",x\n0,1\n", "a.csv, line 1: column 1 has no name"),
        (b"x;y\n1;2\n", "a.csv, line 1: the columns are separated by semicolons; separate them by commas"),
        (b"x\ty\n1\t2\n", "separated by tabs"),
        (b"x,y\n1,2\n1\n", "a.csv, line 3: the number of cells is 1, but the header names 2 columns"),
        (b'x,y\n"1\n",2\n1,2,3\n', "a.csv, line 4: the number of cells is 3"),
        (b'x,y\n1,2\n3,"4\n5,6\n', "line 3: a quoted cell starts here that is never closed"),
        (b'x,y\n1,"2"3\n', "line 2: a quoted cell has text after its closing quote"),
        (b"x,y\r1,2\r", "line 1: a line ends in a carriage return alone"),
        ("x,y\n1,ü\n".encode("latin-1"), "as CSV in UTF-8: line 2: "),
        ("x,y\n1,2\n".encode("utf-16"), "a.csv is text in UTF-16; convert it to UTF-8"),
        (b"\xfe\xff" + "x,y\n1,2\n".encode("utf-16-be"), "a.csv is text in UTF-16; convert it to UTF-8"),
        (gzip.compress(b"x,y\n1,2\n", mtime=0), "a.csv is gzipped; uncompress it"),
        ("x,y\n1,2\n".encode("utf-16-le"), "line 1: line contains NUL; if the file is in UTF-16, convert it to UTF-8"),
        (b"x,y\n1,\x002\n", "line 2: line contains NUL"),
    ],
)
def test_content_that_is_refused(content, message):
    with pytest.raises(DataError, match=message):
        list(csv_rows.read(io.BytesIO(content), "a.csv")[1])


def test_long_cells_are_read():
    """Python's own limit is 131,072 characters."""
    content = b"x\n" + b"a" * 200_000 + b"\n"
    assert [len(cells[0]) for _, cells in csv_rows.read(io.BytesIO(content), "a.csv")[1]] == [200_000]

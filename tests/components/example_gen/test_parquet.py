"""Compares the examples of Parquet files value by value."""

import datetime
import math
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingestion import ingest, ingest_by, rows
from pyarrow import parquet
from tfx.proto import example_gen_pb2

from tfx_distribute.components import ParquetExampleGen
from tfx_distribute.components.example_gen import parquet_columns
from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.trainer_module.errors import DataError

INT64 = (-(2**63), 2**63 - 1)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def test_nulls_alone_are_missing(tmp_path):
    table = {
        "id": list(range(6)),
        "integer": [0, 1, None, *INT64, 0],
        "float": [0.0, -0.0, None, math.nan, math.inf, -1.5],
        "flag": [False, True, None, False, True, False],
        "text": ["", "a", None, "Zoë ☃", "0", "false"],
        "bytes": [b"", b"\x00\xff", None, b"\x80", b"0", b"a"],
        "list": [[0], [], None, [0, 0], [1, 0], [0]],
        "nothing": [None] * 6,
    }
    parquet.write_table(pa.table(table), tmp_path / "part.parquet", row_group_size=4)
    found = sorted(rows(Data(parquet=str(tmp_path / "part.parquet")), tmp_path / "out"), key=lambda row: row["id"])
    assert [row["integer"] for row in found] == [[0], [1], None, [INT64[0]], [INT64[1]], [0]]
    assert str([row["float"] for row in found]) == "[[0.0], [-0.0], None, [nan], [inf], [-1.5]]"
    assert [row["flag"] for row in found] == [[0], [1], None, [0], [1], [0]]
    assert [row["text"] for row in found] == [[b""], [b"a"], None, ["Zoë ☃".encode()], [b"0"], [b"false"]]
    assert [row["bytes"] for row in found] == [[b""], [b"\x00\xff"], None, [b"\x80"], [b"0"], [b"a"]]
    assert [row["list"] for row in found] == [[0], None, None, [0, 0], [1, 0], [0]]
    assert [row["nothing"] for row in found] == [None] * 6


def test_each_type_arrives_as_documented(tmp_path):
    day, noon = datetime.date(1970, 1, 3), datetime.datetime(1970, 1, 1, 0, 0, 5, 7)
    minute = datetime.time(0, 1, 0, 9)
    columns = {
        "uint8": ([255, 0], pa.uint8(), [255]),
        "int16": ([-32768, 0], pa.int16(), [-32768]),
        "uint64": ([2**63 - 1, 0], pa.uint64(), [2**63 - 1]),
        "float32": ([0.1, 0], pa.float32(), [0.10000000149011612]),
        "float64": ([0.1, 0], pa.float64(), [0.10000000149011612]),
        "date32": ([day, None], pa.date32(), [2]),
        "date64": ([day, None], pa.date64(), [2]),
        "timestamp": ([noon, None], pa.timestamp("us"), [5_000_007]),
        "timestamp_ms": ([noon.replace(microsecond=0), None], pa.timestamp("ms", tz="Europe/Berlin"), [5000]),
        "time32": ([minute.replace(microsecond=0), None], pa.time32("ms"), [60_000]),
        "time64": ([minute, None], pa.time64("us"), [60_000_009]),
        "duration": ([datetime.timedelta(seconds=1), None], pa.duration("ms"), [1000]),
        "decimal": ([Decimal("1.25"), None], pa.decimal128(9, 2), [1.25]),
        "whole_decimal": ([Decimal(2**60), None], pa.decimal128(38, 0), [2**60]),
        "large_string": (["ß", ""], pa.large_string(), ["ß".encode()]),
        "fixed_binary": ([b"ab", None], pa.binary(2), [b"ab"]),
        "dictionary": (["a", None], pa.dictionary(pa.int8(), pa.string()), [b"a"]),
        "strings": ([["", "b"], []], pa.list_(pa.string()), [b"", b"b"]),
        "dates": ([[day, day], None], pa.large_list(pa.date32()), [2, 2]),
        "flags": ([[False, True], None], pa.list_(pa.bool_()), [0, 1]),
    }
    table = pa.table({name: pa.array(values, kind) for name, (values, kind, _) in columns.items()})
    parquet.write_table(table.slice(0, 1), tmp_path / "all.parquet", version="2.6")
    (found,) = rows(Data(parquet=str(tmp_path / "all.parquet"), splits={"train": 1}), tmp_path / "out")
    assert found == {name: expected for name, (_, _, expected) in columns.items()}


def test_int96_timestamps_arrive_as_microseconds(tmp_path):
    """Nanoseconds in 64 bits would wrap before 1678 and after 2262."""
    moments = [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1), datetime.datetime(1970, 1, 1, 0, 0, 5, 7)]
    columns = {
        "id": pa.array([0, 1, 2]),
        "time": pa.array(moments, pa.timestamp("us")),
        "times": pa.array([[moment] for moment in moments], pa.list_(pa.timestamp("us"))),
    }
    file = tmp_path / "spark.parquet"
    parquet.write_table(pa.table(columns), file, use_deprecated_int96_timestamps=True)
    meanings = parquet_columns.inspect([str(file)])
    assert meanings["time"] == "timestamp[us]"
    found = sorted(rows(Data(parquet=str(file)), tmp_path / "out"), key=lambda row: row["id"])
    expected = [[253_402_214_400_000_000], [-62_135_596_800_000_000], [5_000_007]]
    assert [row["time"] for row in found] == expected
    assert [row["times"] for row in found] == expected


def test_values_arrive_from_slices_and_fixed_size_lists():
    whole = batch(
        pair=pa.array([[9, 9], [0, 1], None, [2, 0]], pa.list_(pa.int32(), 2)),
        word=pa.array(["x", "", None, "y"]).dictionary_encode(),
        half=pa.array([None, 0, 1, None], pa.int8()).cast(pa.float32()),
    )
    found = parquet_columns.to_features(whole.slice(1), "file").to_pydict()
    assert found == {
        "pair": [[0, 1], None, [2, 0]],
        "word": [[b""], None, [b"y"]],
        "half": [[0.0], [1.0], None],
    }


@given(st.lists(st.none() | st.lists(st.integers(*INT64), max_size=3)), st.integers(0, 3))
def test_lists_arrive_as_they_are(values, start):
    """An empty one is a missing value."""
    part = batch(x=pa.array(values, pa.list_(pa.int64()))).slice(start)
    assert parquet_columns.to_features(part, "file").to_pydict() == {"x": [value or None for value in values[start:]]}


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.list_(pa.int64())),
        pa.list_(pa.struct([("a", pa.int64())])),
        pa.float16(),
        pa.month_day_nano_interval(),
    ],
    ids=str,
)
def test_types_without_a_feature_are_refused(kind):
    with pytest.raises(DataError, match=r"a\.parquet: column 'nested' has the type .* which a tf.Example cannot hold"):
        parquet_columns.describe_columns(pa.schema([("x", pa.int64()), ("nested", kind)]), "a.parquet")


def test_pandas_index_is_refused(tmp_path):
    """Pandas writes any index but a plain range as a column."""
    file = tmp_path / "a.parquet"
    frame = pd.DataFrame({"x": range(10)})
    frame[frame.x > 4].to_parquet(file)
    with pytest.raises(DataError, match=r"a\.parquet: column '__index_level_0__' is the index .*to_parquet\(.*index=False"):
        parquet_columns.inspect([str(file)])
    frame[frame.x > 4].to_parquet(file, index=False)
    assert parquet_columns.inspect([str(file)]) == {"x": "integer"}


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([0, 2**63], pa.uint64(), "column 'x': Integer value 9223372036854775808 not in range"),
        ([0.0, -1e39], pa.float64(), "column 'x': -1e[+]39 is beyond the range of float32"),
        ([Decimal(10**20)], pa.decimal128(38, 0), "column 'x': Integer value out of bounds"),
        ([[1, None]], pa.list_(pa.int64()), "column 'x': a null inside a list"),
        ([[2**63]], pa.list_(pa.uint64()), "column 'x': Integer value"),
    ],
)
def test_values_that_do_not_fit_are_refused(values, kind, message):
    with pytest.raises(DataError, match=f"a.parquet: {message}"):
        parquet_columns.to_features(batch(x=pa.array(values, kind)), "a.parquet")


def inspect(folder, **tables):
    for name, table in tables.items():
        parquet.write_table(table, folder / name)
    return parquet_columns.inspect([str(folder / name) for name in tables])


def test_files_agree_where_their_values_arrive_in_the_same_way(tmp_path):
    """Bit widths, the order of columns, and columns without values do not matter."""
    columns = inspect(
        tmp_path,
        a=pa.table({"x": pa.array([None], pa.null()), "y": pa.array([1.0])}),
        b=pa.table({"y": pa.array([1.0], pa.float32()), "x": pa.array([1], pa.int8())}),
        c=pa.table({"x": pa.array([], pa.int64()), "y": pa.array([], pa.float64())}),
    )
    assert columns == {"x": "integer", "y": "float"}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": [1]}, "it lacks y"),
        ({"x": [1], "y": [1], "z": [1]}, "it adds z"),
        ({"x": ["a"], "y": [1]}, "column 'x' holds 'bytes', there it holds 'integer'"),
        (
            {"x": pa.array([1], pa.timestamp("us")), "y": [1]},
            r"column 'x' holds 'timestamp\[us\]', there it holds 'integer'",
        ),
    ],
)
def test_files_that_differ_are_refused(tmp_path, second, message):
    with pytest.raises(DataError, match=f"the columns of .*/b are not those of .*/a: {message}"):
        inspect(tmp_path, a=pa.table({"x": [1], "y": [1]}), b=pa.table(second))


def test_file_that_gives_an_untyped_column_its_type(tmp_path):
    with pytest.raises(DataError, match="the columns of .*/c are not those of .*/a: column 'x' holds 'bytes'"):
        inspect(tmp_path, a=pa.table({"x": [None]}), b=pa.table({"x": [1]}), c=pa.table({"x": ["a"]}))


def test_files_without_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="there are no rows in .*/a, .*/b"):
        inspect(tmp_path, a=pa.table({"x": pa.array([], pa.int64())}), b=pa.schema([("x", pa.int64())]).empty_table())


def test_same_content_falls_into_the_same_splits(tmp_path):
    """The division into files and row groups does not matter."""
    table = pa.table({"number": list(range(200)), "text": [str(number % 7) for number in range(200)]})
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    parquet.write_table(table, tmp_path / "whole" / "a")
    parquet.write_table(table.select(["text", "number"]).slice(50), tmp_path / "parts" / "a", row_group_size=30)
    parquet.write_table(table.slice(0, 50), tmp_path / "parts" / "b")

    def numbers(folder):
        splits = ingest(Data(parquet=str(tmp_path / folder)), tmp_path / f"{folder}-out")
        return {split: sorted(row["number"][0] for row in found) for split, found in splits.items()}

    whole = numbers("whole")
    assert sorted(whole["train"] + whole["eval"]) == list(range(200))
    assert 100 < len(whole["train"]) < 160
    assert numbers("parts") == whole


def test_splits_of_different_columns_are_refused(tmp_path):
    """A moment in microseconds would be a thousand times that in milliseconds."""
    for name, unit in (("train", "us"), ("eval", "ms")):
        parquet.write_table(pa.table({"time": pa.array([1, 2], pa.timestamp(unit))}), tmp_path / name)
    splits = [example_gen_pb2.Input.Split(name=name, pattern=name) for name in ("train", "eval")]
    component = ParquetExampleGen(str(tmp_path), input_config=example_gen_pb2.Input(splits=splits))
    with pytest.raises(DataError, match="the columns of .*/eval are not those of .*/train: column 'time'"):
        ingest_by(component, tmp_path / "out")


def test_damaged_part_is_named(tmp_path):
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"x": [str(number) for number in range(1000)]}), file, use_dictionary=False)
    content = bytearray(file.read_bytes())
    content[100:400] = b"\xff" * 300
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: row group 0 cannot be read: "):
        rows(Data(parquet=str(file)), tmp_path / "out")

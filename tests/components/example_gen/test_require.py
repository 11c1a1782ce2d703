"""Tests that examples without a required value are left out and counted."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from ingestion import ingest, make_examples, resolved, rows
from pyarrow import parquet
from tfx.proto import example_gen_pb2

from tfx_distribute.components import CsvExampleGen
from tfx_distribute.components.beam import parts as beam_parts
from tfx_distribute.components.example_encoder import encode
from tfx_distribute.components.example_gen import require
from tfx_distribute.components.example_gen.names import LEFT_OUT
from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.trainer_module.errors import DataError

SOURCES = ["csv", "parquet", "tfrecord"]
KINDS = {"number": "int64_list", "x": "int64_list", "share": "float_list", "text": "bytes_list", "words": "bytes_list"}
Row = Mapping[str, Any]


def make_rows() -> list[Row]:
    """Returns 40 rows: 8 have no number, 8 no text, 4 neither; 8 have no share."""
    table = []
    for number in range(40):
        row = {"id": number, "number": number - 20, "share": number / 4, "text": f"text {number}"}
        for name, is_missing in (
            ("number", number % 5 == 1 or number % 10 == 2),
            ("text", number % 5 == 3 or number % 10 == 2),
            ("share", number % 5 == 4),
        ):
            row[name] = None if is_missing else row[name]
        table.append(row)
    return table


def write(source: str, folder: Path, table: Iterable[Row]) -> Path:
    """Writes rows; None becomes what the format has for a missing value."""
    folder.mkdir(exist_ok=True)
    table = list(table)
    if source == "csv":
        lines = [",".join("" if value is None else str(value) for value in row.values()) for row in table]
        (folder / "a").write_text("\n".join([",".join(table[0]), *lines, ""]))
    elif source == "parquet":
        parquet.write_table(pa.Table.from_pylist(table), folder / "a", row_group_size=7)
    else:
        with tf.io.TFRecordWriter(str(folder / "a")) as writer:
            for position, row in enumerate(table):
                writer.write(make_example(row, position).SerializeToString())
    return folder


def make_example(row: Row, position: int) -> tf.train.Example:
    """Returns an example; a missing feature is absent, untyped, or has no values."""
    example = tf.train.Example()
    for name, value in row.items():
        values = [] if value is None else value if isinstance(value, list) else [value]
        if not values and position % 3 == 0:
            continue
        feature = example.features.feature[name]
        if not values and position % 3 == 1:
            getattr(feature, KINDS.get(name, "bytes_list")).SetInParent()
        for item in values:
            if isinstance(item, str):
                feature.bytes_list.value.append(item.encode())
            elif isinstance(item, float):
                feature.float_list.value.append(item)
            else:
                feature.int64_list.value.append(item)
    return example


def ids(examples: Iterable[Row]) -> list[int]:
    return sorted(example["id"][0] for example in examples)


@pytest.mark.parametrize(("source", "processes"), [("csv", 2), ("parquet", 1), ("tfrecord", 2)])
def test_the_others_stay_in_their_splits_and_are_counted(tmp_path, monkeypatch, source, processes):
    monkeypatch.setattr(beam_parts, "num_processes", lambda arguments: processes)
    data = str(write(source, tmp_path / "data", make_rows()))
    all_examples = ingest(Data(**{source: data}), tmp_path / "all")
    names = ["number", "text"]
    component = tfx_pipeline.make_example_gen(Data(**{source: data}, require=names))
    examples = make_examples(component, tmp_path / "counted")
    assert examples.get_string_custom_property(LEFT_OUT) == "20 of 40 examples without a value of number (12), text (12)"
    assert {file.name for file in (tmp_path / "counted").iterdir()} == {"Split-train", "Split-eval"}
    expected = {
        split: [example for example in found if all(example.get(name) for name in names)]
        for split, found in all_examples.items()
    }
    key = lambda example: example["id"]  # noqa: E731
    for split, found in ingest(Data(**{source: data}, require=names), tmp_path / "kept").items():
        assert sorted(found, key=key) == sorted(expected[split], key=key)
        assert found


@pytest.mark.parametrize("source", SOURCES)
def test_zeros_and_nan_are_values(tmp_path, source):
    table = [{"id": 0, "x": 0.0}, {"id": 1, "x": math.nan}, {"id": 2, "x": None}, {"id": 3, "x": 0.5}]
    data = Data(**{source: str(write(source, tmp_path / "data", table))}, require=["x"], splits={"train": 1})
    assert ids(rows(data, tmp_path / "out")) == [0, 1, 3]


@pytest.mark.parametrize("source", SOURCES)
def test_a_feature_that_no_example_has(tmp_path, source):
    data = str(write(source, tmp_path / "data", [{**row, "nothing": None} for row in make_rows()]))
    with pytest.raises(DataError, match="require: none of the 40 examples has a value of 'nothing'; write another feature"):
        rows(Data(**{source: data}, require=["nothing"]), tmp_path / "nothing")
    unknown = (
        "none of the 40 examples has a value of 'numbr'"
        if source == "tfrecord"
        else ".*data has no column 'numbr'; it has id"
    )
    with pytest.raises(DataError, match=f"require: {unknown}"):
        rows(Data(**{source: data}, require=["numbr"]), tmp_path / "unknown")


def test_other_required_features_are_another_cache_key(tmp_path):
    write("csv", tmp_path / "data", make_rows())
    keys = [str(resolved(Data(csv=str(tmp_path / "data"), require=names))) for names in ([], ["text"], ["number"])]
    assert len({*keys}) == 3


def test_splits_of_their_own_files(tmp_path):
    write("csv", tmp_path / "data", make_rows())
    (tmp_path / "data" / "b").write_text("number,other\n1,2\n,3\n")
    splits = [example_gen_pb2.Input.Split(name=name, pattern=pattern) for name, pattern in (("train", "a"), ("eval", "b"))]
    config = example_gen_pb2.Input(splits=splits)
    component = CsvExampleGen(str(tmp_path / "data"), input_config=config, require=["number"])
    examples = make_examples(component, tmp_path / "out")
    assert examples.get_string_custom_property(LEFT_OUT) == "13 of 42 examples without a value of number (13)"
    with pytest.raises(DataError, match="has no column 'other'; it has number"):
        make_examples(CsvExampleGen(str(tmp_path / "data"), input_config=config, require=["other"]), tmp_path / "other")


VALUES = {
    "int": (pa.int64(), st.integers(-2, 2)),
    "float": (pa.float32(), st.sampled_from([0.0, math.nan, 1.0])),
    "bytes": (pa.large_binary(), st.sampled_from([b"", b"a"])),
}


@settings(deadline=None)
@given(st.data(), st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3), st.integers(0, 6))
def test_columns_are_left_out_as_examples_are(data, kinds, size):
    columns = {}
    for number, kind in enumerate(kinds):
        value_type, values = VALUES[kind]
        lists = data.draw(st.lists(st.none() | st.lists(values, max_size=2), min_size=size, max_size=size))
        columns[f"{number}"] = pa.array(lists, pa.large_list(value_type))
    columns["nothing"] = pa.nulls(size)
    batch = pa.RecordBatch.from_pydict(columns)
    batch = batch.slice(data.draw(st.integers(0, 2)))
    names = data.draw(st.lists(st.sampled_from([*columns]), min_size=1, max_size=3, unique=True))
    of_columns, of_examples = require.Counts(), require.Counts()
    assert encode(require.select(batch, names, of_columns)) == require.select(encode(batch), names, of_examples)
    assert of_columns == of_examples
    assert max(of_columns.without.values()) <= of_columns.left_out <= sum(of_columns.without.values())

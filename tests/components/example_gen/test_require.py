"""Tests that examples without a required value are left out and counted."""

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingestion import ingest, make_examples, resolved, rows, write_table
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
Row = Mapping[str, Any]


def make_rows() -> list[Row]:
    """Returns 40 rows: 8 have no number, 8 no text, 4 neither; 8 have no share."""
    return [
        {
            "id": number,
            "number": None if number % 5 == 1 or number % 10 == 2 else number - 20,
            "share": None if number % 5 == 4 else number / 4,
            "text": None if number % 5 == 3 or number % 10 == 2 else f"text {number}",
        }
        for number in range(40)
    ]


@pytest.mark.parametrize(("source", "processes"), [("csv", 2), ("parquet", 1), ("tfrecord", 2)])
def test_the_others_stay_in_their_splits_and_are_counted(tmp_path, monkeypatch, source, processes):
    monkeypatch.setattr(beam_parts, "num_processes", lambda arguments: processes)
    data = str(write_table(source, tmp_path / "data", make_rows()))
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
    data = Data(**{source: str(write_table(source, tmp_path / "data", table))}, require=["x"], splits={"train": 1})
    assert sorted(row["id"][0] for row in rows(data, tmp_path / "out")) == [0, 1, 3]


@pytest.mark.parametrize("source", SOURCES)
def test_a_feature_that_no_example_has(tmp_path, source):
    data = str(write_table(source, tmp_path / "data", [{**row, "nothing": None} for row in make_rows()]))
    with pytest.raises(DataError, match="require: none of the 40 examples has a value of 'nothing'; write another feature"):
        rows(Data(**{source: data}, require=["nothing"]), tmp_path / "nothing")
    unknown = (
        "none of the 40 examples has a value of 'numbr'" if source == "tfrecord" else ".* has no column 'numbr'; it has id"
    )
    with pytest.raises(DataError, match=f"require: {unknown}"):
        rows(Data(**{source: data}, require=["numbr"]), tmp_path / "unknown")


def test_other_required_features_are_another_cache_key(tmp_path):
    write_table("csv", tmp_path / "data", make_rows())
    keys = [str(resolved(Data(csv=str(tmp_path / "data"), require=names))) for names in ([], ["text"], ["number"])]
    assert len({*keys}) == 3


def test_splits_of_their_own_files(tmp_path):
    write_table("csv", tmp_path / "a", make_rows())
    (tmp_path / "b").write_text("number,other\n1,2\n,3\n")
    splits = [example_gen_pb2.Input.Split(name=name, pattern=pattern) for name, pattern in (("train", "a"), ("eval", "b"))]
    config = example_gen_pb2.Input(splits=splits)
    component = CsvExampleGen(str(tmp_path), input_config=config, require=["number"])
    examples = make_examples(component, tmp_path / "out")
    assert examples.get_string_custom_property(LEFT_OUT) == "13 of 42 examples without a value of number (13)"
    with pytest.raises(DataError, match="has no column 'other'; it has number"):
        make_examples(CsvExampleGen(str(tmp_path), input_config=config, require=["other"]), tmp_path / "other")


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

"""Tests how files are divided into parts, which several processes read."""

import collections

import pyarrow as pa
import pytest
import tensorflow as tf
from ingestion import ingest
from pyarrow import csv, parquet

from tfx_distribute.components.beam import parts as beam_parts
from tfx_distribute.components.example_gen import executor
from tfx_distribute.pipelines.spec.pipeline import Data


@pytest.mark.parametrize(("num_files", "processes"), [(1, 1), (3, 1), (1, 2), (3, 2), (100, 2), (1, 8)])
def test_parts_have_each_piece_of_each_file_once(num_files, processes):
    files = [f"{number}" for number in range(num_files)]
    parts = executor.make_parts(files, processes)
    pieces = collections.Counter((file, part.number) for part in parts for file in part.files)
    assert pieces == dict.fromkeys([(file, number) for file in files for number in range(parts[0].num_parts)], 1)
    assert len({part.name for part in parts}) == len(parts)
    assert len(parts) == 1 if processes == 1 else processes <= len(parts) <= 16 * processes


@pytest.mark.parametrize("source", ["csv", "parquet", "tfrecord"])
def test_several_processes_write_the_same_splits(tmp_path, monkeypatch, source):
    (tmp_path / "data").mkdir()
    for name, first in (("a", 0), ("b", 50)):
        table = pa.table({"x": [*range(first, first + 50)], "text": ["a,b"] * 50})
        if source == "csv":
            csv.write_csv(table, tmp_path / "data" / name)
        elif source == "parquet":
            parquet.write_table(table, tmp_path / "data" / name, row_group_size=10)
        else:
            with tf.io.TFRecordWriter(str(tmp_path / "data" / name)) as writer:
                for x in table["x"].to_pylist():
                    feature = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[x]))}
                    writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())

    def read(processes):
        monkeypatch.setattr(beam_parts, "num_processes", lambda arguments: processes)
        folder = tmp_path / f"out{processes}"
        splits = ingest(Data(**{source: str(tmp_path / "data")}), folder)
        files = [file.name for file in sorted(folder.glob("Split-train/*"))]
        return {name: sorted(row["x"][0] for row in rows) for name, rows in splits.items()}, files

    alone, one_file = read(1)
    assert sorted(alone["train"] + alone["eval"]) == [*range(100)]
    assert one_file == ["data_tfrecord-00000-of-00001.gz"]
    together, files = read(2)
    assert together == alone
    assert files == [f"data_tfrecord-{number:05d}-of-00004.gz" for number in range(4)]
    assert {file.name for file in (tmp_path / "out2").iterdir()} == {"Split-train", "Split-eval"}

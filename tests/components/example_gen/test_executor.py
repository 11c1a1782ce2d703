"""Tests how examples are divided: files into parts for processes, and into splits."""

import collections

import pytest
from ingestion import ingest, ingest_by, write_table
from tfx.proto import example_gen_pb2

from tfx_distribute.components import CsvExampleGen
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
        write_table(source, tmp_path / "data" / name, [{"x": x, "text": "a,b"} for x in range(first, first + 50)])

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


def test_all_examples_of_a_user_are_in_one_split(tmp_path):
    """As TFX splits by a feature with its own ExampleGens."""
    table = [{"user": f"u{number % 7}", "number": number, "share": 0.5} for number in range(100)]
    write_table("csv", tmp_path / "a.csv", table)
    splits = [
        example_gen_pb2.SplitConfig.Split(name=split, hash_buckets=count) for split, count in (("train", 2), ("eval", 1))
    ]
    config = example_gen_pb2.SplitConfig(splits=splits, partition_feature_name="user")
    output = example_gen_pb2.Output(split_config=config)
    found = ingest_by(CsvExampleGen(str(tmp_path), output_config=output), tmp_path / "out")
    users = {name: {example["user"][0] for example in examples} for name, examples in found.items()}
    # The same as with TFX's: by the hash of the serialized feature.
    assert users == {"train": {b"u3", b"u4", b"u5", b"u6"}, "eval": {b"u0", b"u1", b"u2"}}
    numbers = [example["number"][0] for examples in found.values() for example in examples]
    assert sorted(numbers) == list(range(100))

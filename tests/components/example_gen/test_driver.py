"""Tests which files are read, and their cache key."""

import os
import shutil

import pytest
from ingestion import resolved, rows, write_table
from tfx.proto import range_config_pb2

from tfx_distribute.components import CsvExampleGen
from tfx_distribute.components.example_gen.formats import FORMATS
from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

STRANGE = r"a [b]*? {SPAM} \d ü"


@pytest.mark.parametrize("source", ["csv", "tfrecord", "parquet"])
def test_hidden_files_are_left_out_and_names_are_literal(tmp_path, source):
    folder = tmp_path / STRANGE
    folder.mkdir()
    write_table(source, folder / "new", [{"x": 1}]).rename(folder / f"{STRANGE}.1")
    write_table(source, folder / "plain", [{"x": 2}])
    for name in (".DS_Store", ".plain.crc", "_SUCCESS", "_metadata"):
        (folder / name).write_text("not data")
    found = rows(Data(**{source: str(folder)}), tmp_path / "out")
    assert sorted(row["x"] for row in found) == [[1], [2]]
    assert rows(Data(**{source: str(folder / f"{STRANGE}.1")}), tmp_path / "out2") == [{"x": [1]}]


def test_file_that_was_not_there_when_the_pipeline_was_compiled(tmp_path):
    component = tfx_pipeline.make_example_gen(Data(csv=str(tmp_path / "a.csv")))
    (tmp_path / "a.csv").write_text("x\n1\n")
    assert FORMATS["csv"].list_files(component.exec_properties["input_base"], "*") == [str(tmp_path / "a.csv")]


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie", "_spark_metadata"])
def test_tables_whose_log_says_which_rows_count_are_refused(tmp_path, log):
    (tmp_path / log).mkdir()
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(DataError, match=f"{tmp_path} is a table whose log in {log} says which files and rows count"):
        FORMATS["csv"].list_files(str(tmp_path), "*")


@pytest.mark.parametrize(("base", "pattern"), [("data", "*"), ("data", "gone.csv"), ("gone", "*")])
def test_nothing_to_read(tmp_path, base, pattern):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "_SUCCESS").touch()
    with pytest.raises(DataError, match="holds no data files|does not exist"):
        FORMATS["csv"].list_files(str(tmp_path / base), pattern)


def test_folders_in_a_folder_are_refused(tmp_path):
    (tmp_path / "data" / "year=2026").mkdir(parents=True)
    with pytest.raises(DataError, match="year=2026 is a folder; the files have to be directly in"):
        FORMATS["csv"].list_files(str(tmp_path / "data"), "*")


@pytest.mark.parametrize("source", ["csv", "tfrecord", "parquet"])
def test_changed_content_changes_the_key(tmp_path, source):
    file = tmp_path / "data"
    file.write_bytes(b"x,y\n1,2\n")
    before = resolved(Data(**{source: str(file)}))
    assert resolved(Data(**{source: str(file)})) == before
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_bytes(b"x,y\n1,3\n")
    os.utime(file, ns=times)
    assert resolved(Data(**{source: str(file)})) != before


def test_same_content_keeps_the_key(tmp_path):
    """Neither mtime nor hidden files matter; each file counts."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text("x\n1\n")
    before = resolved(Data(csv=str(data)))
    os.utime(data / "a.csv", (0, 0))
    (data / ".DS_Store").write_text("not data")
    assert resolved(Data(csv=str(data))) == before
    shutil.copy(data / "a.csv", data / "b.csv")
    assert resolved(Data(csv=str(data))) != before


def test_spans_are_refused(tmp_path):
    spans = range_config_pb2.RangeConfig(static_range=range_config_pb2.StaticRange(start_span_number=1, end_span_number=1))
    with pytest.raises(ConfigurationError, match="^range_config: this ExampleGen reads the spans of an input_base"):
        CsvExampleGen(input_base=str(tmp_path), range_config=spans)

"""Tests that `validate` refuses exactly those data files that cannot be read."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.spec import data_checks
from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def project(tmp_path) -> Path:
    """Writes a pipeline with CSV data in the folder `data`, which has one file."""
    (tmp_path / "model.py").write_text("def build_model(context): ...\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("x,y\n1,2\n")
    write_pipeline(tmp_path, "csv")
    return tmp_path


def write_pipeline(project: Path, source: str) -> None:
    (project / "pipeline.yaml").write_text(
        f"name: mine\nmodule: model.py\ndata: {{{source}: data}}\ntrainer: {{label: y, parameters: {{epochs: 1}}}}\n"
    )


def validate(project: Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["validate", str(project / "pipeline.yaml")])
    return result.exit_code, result.output


def test_hidden_files_are_left_out(project):
    for name in (".DS_Store", ".a.crc", "_SUCCESS"):
        (project / "data" / name).write_text("not data")
    (project / "data" / ".ipynb_checkpoints").mkdir()
    assert validate(project)[0] == 0


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("part", Path.mkdir, "data/part is a folder; the files have to be directly in"),
        ("gone", lambda path: path.symlink_to("nowhere"), "cannot read {data}/gone: No such file or directory"),
        ("b", Path.touch, "data/b is empty"),
        ("b", lambda path: path.write_text("x,y\n"), "data/b has a header but no rows; remove it"),
    ],
    ids=["folder", "dead link", "empty", "header"],
)
def test_what_cannot_be_data(project, name, make: Callable[[Path], object], message):
    make(project / "data" / name)
    code, output = validate(project)
    assert (code, output.count("\n")) == (2, 1), output
    assert message.replace("{data}", str(project / "data")) in output


def test_parquet_files_are_looked_into(project):
    write_pipeline(project, "parquet")
    parquet.write_table(pa.table({"x": [1], "y": [0]}), project / "data" / "a")
    assert validate(project)[0] == 0
    parquet.write_table(pa.table({"x": [1]}), project / "data" / "a")
    assert "trainer.label: " in (output := validate(project)[1])
    assert "has no column 'y'; it has x" in output
    (project / "data" / "b").write_text("text, not Parquet\n")
    code, output = validate(project)
    assert (code, output.count("\n")) == (2, 1), output
    assert "Error: data.parquet: " in output
    assert "data/b is not a Parquet file" in output


@pytest.mark.parametrize(("missing", "code"), [("skip", 0), ("fail", 2)])
@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("x,y\n", "2026-11-02/a.csv has a header but no rows; remove it, or, for one of several spans, write"),
        ("z,y\n1,2\n", "it lacks x and it adds z; or write data.missing: skip, with which columns that a day"),
    ],
)
def test_a_day_without_rows_or_a_column(project, second, message, missing, code):
    for day, text in (("2026-11-01", "x,y\n1,2\n"), ("2026-11-02", second)):
        (project / "days" / day).mkdir(parents=True)
        (project / "days" / day / "a.csv").write_text(text)
    write_pipeline(project, "csv")
    path = project / "pipeline.yaml"
    days = f"{{csv: 'days/{{YYYY}}-{{MM}}-{{DD}}', window: 2, missing: {missing}}}"
    path.write_text(path.read_text().replace("{csv: data}", days))
    found, output = validate(project)
    assert (found, message in output) == (code, code == 2), output


def test_addresses_have_no_wildcards():
    assert data_checks.get_input_base_and_pattern(Data(csv="gs://bucket/data")) == ("gs://bucket/data", "*")
    with pytest.raises(ConfigurationError, match=r"data.csv: gs://bucket/\*.csv has one of the characters"):
        data_checks.get_input_base_and_pattern(Data(csv="gs://bucket/*.csv"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"feature { nme: 1 }", "schema.pbtxt is not a schema in text format"),
        (b"\xff", "schema.pbtxt: not a text file in UTF-8"),
        (None, "schema.pbtxt does not exist; leave it out for the first run"),
    ],
)
def test_schema_that_cannot_be_read(project, content, message):
    """Holds for all kinds of data."""
    write_pipeline(project, "tfrecord")
    file = project / "pipeline.yaml"
    file.write_text(file.read_text().replace("tfrecord: data", "tfrecord: data, schema_file: schema.pbtxt"))
    if content is not None:
        (project / "schema.pbtxt").write_bytes(content)
    code, output = validate(project)
    assert code == 2
    assert output.startswith("Error: data.schema_file: ")
    assert message in output


def require(project: Path, source: str, names: str) -> None:
    text = (project / "pipeline.yaml").read_text()
    (project / "pipeline.yaml").write_text(text.replace(f"{{{source}: data}}", f"{{{source}: data, require: {names}}}"))


@pytest.mark.parametrize("source", ["csv", "images"])
def test_required_features_are_columns(project, source):
    write_pipeline(project, source)
    require(project, source, "[y, z]")
    place, columns = "data/a", "x, y"
    if source == "images":
        (project / "data" / "a").rename(project / "data" / "a.png")
        (project / "data" / "metadata.csv").write_text("file_name,y\na.png,1\n")
        place, columns = "data", "image, y"
    code, output = validate(project)
    assert (code, output.count("\n")) == (2, 1), output
    assert "Error: data.require: " in output
    assert f"{project}/{place} has no column 'z'; it has {columns}\n" in output


def test_folders_of_images_are_looked_into(project):
    write_pipeline(project, "images")
    (project / "pipeline.yaml").write_text((project / "pipeline.yaml").read_text().replace("label: y", "label: label"))
    (project / "data" / "a").unlink()

    def add(name: str) -> tuple[int, str]:
        (project / "data" / name).parent.mkdir(exist_ok=True)
        (project / "data" / name).touch()
        return validate(project)

    add(".DS_Store")
    code, output = add("cat/1.png")
    assert (code, output.count("\n")) == (2, 1), output
    assert output.startswith("Error: data.images: ")
    assert "data has only one class, cat; write a folder that holds a folder for each class" in output
    assert add("dog/1.JPG")[0] == 0

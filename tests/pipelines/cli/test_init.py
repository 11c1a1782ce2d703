"""Tests `init`: what it writes for which data, what it refuses, and that it runs."""

import ast
import csv
import math
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from pyarrow import parquet

from tfx_distribute.pipelines.cli import init as init_lib
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec

STRANGE = ["class", "petal length", "price.eur", "is-new", 'a "quote"', "label", "examples", "größe"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def init(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["init", *words])
    assert result.exit_code == code, result.output
    return result.output


def write_csv(columns: dict[str, list[Any]], file: str = "data.csv") -> None:
    """Writes columns as CSV; None is a gap."""
    with Path(file).open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *zip(*columns.values(), strict=True)])


def constants_of(folder: str = "mine") -> dict[str, Any]:
    """Returns the constants of a written model."""
    constants: dict[str, Any] = {}
    for node in ast.parse(Path(folder, "model.py").read_text()).body:
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            names, value = ast.unparse(target).strip("()").split(", "), ast.literal_eval(node.value)
            constants |= zip(names, value if len(names) > 1 else [value], strict=True)
    return constants


def check_written(folder: str = "mine") -> PipelineSpec:
    """Checks that a project is valid, and that its files are formatted."""
    validated = CliRunner().invoke(main, ["validate", f"{folder}/pipeline.yaml"])
    assert validated.exit_code == 0, validated.output
    for check in (["check", "--select", "E,F,W,I,B,UP,SIM", "--ignore", "E501"], ["format", "--diff"]):
        checked = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "--isolated", "--no-cache", "."],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
    return PipelineSpec.model_validate(yaml.safe_load(Path(folder, "pipeline.yaml").read_text()))


NUMBERS = [1.5, 2.5, 1.5, 4.0, 5.0, 7.25, 3.0, 0.5]
TEXTS = ["a", "b", "a", "b", "a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("column", "constant"),
    [
        (NUMBERS, "NUMBERS"),
        ([3, 1, 3, 5, 9, 2, 6, 40], "NUMBERS"),
        ([3, None, 3, 5, 9, 2, 6, 40], "NUMBERS"),
        (["true", "false"] * 4, "CATEGORIES"),
        (["true", None] * 4, "CATEGORIES"),
        (["x y z", "a b c"] * 4, "CATEGORIES"),
        ([f"these are\n{number} words" for number in range(8)], "TEXTS"),
        ([f"92233720368547758{number % 2}8" for number in range(8)], "CATEGORIES"),
    ],
)
@pytest.mark.parametrize("label", ["y", "z"])
def test_kinds_of_columns(column, constant, label):
    write_csv({"x": column, "y": TEXTS, "z": [number / 3 for number in range(8)]})
    init("mine", "--from", "data.csv", "--label", label)
    check_written()
    assert "x" in constants_of()[constant]
    assert "_fill" in Path("mine/model.py").read_text(), "later data may have gaps"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ([None] * 8, "it is empty"),
        ([3] * 8, "every row has the same value"),
        (["a"] * 8, "every row has the same value"),
        ([5, 6, 7, 8, 12, 11, 10, 9], "it numbers the rows"),
        ([f"ticket-{number}" for number in range(8)], "nearly every row has a text of its own"),
        ([f"2026-11-{1 + number % 2:02}" for number in range(8)], "it holds moments"),
        ([None, *(f"{number}/11/2026 17:{number:02}" for number in range(7))], "it holds moments"),
    ],
)
def test_columns_that_are_left_out_are_named(column, reason):
    write_csv({"x": column, "other": NUMBERS, "y": TEXTS})
    output = init("mine", "--from", "data.csv", "--label", "y")
    assert f"left out    x: {reason}" in output
    assert constants_of()["NUMBERS"] == ["other"]


@pytest.mark.parametrize("name", ["id", "user_id", "userId", "ID", "paid"])
def test_identifiers_with_holes_are_known_by_their_name(name):
    write_csv({name: [1, 5, 17, 2, 40, 33, 21, 90], "other": NUMBERS, "y": TEXTS})
    output = init("mine", "--from", "data.csv", "--label", "y")
    assert (f"left out    {name}: it numbers the rows\n" in output) == (name != "paid")


@pytest.mark.parametrize("column", [NUMBERS, ["a", "b"] * 4, [f"number {number} of these" for number in range(8)]])
def test_a_single_column_is_not_joined_with_others(column):
    write_csv({"x": column, "y": TEXTS})
    init("mine", "--from", "data.csv", "--label", "y")
    check_written()
    assert ("concatenate" in Path("mine/model.py").read_text()) == (column == ["a", "b"] * 4)


def test_text_label():
    write_csv({"x": NUMBERS, "y": ["yes", "no", "no", "no", "no", "yes", "yes", "no"]})
    assert "predicts    y: one of 2 classes, from 8 rows\n" in init("mine", "--from", "data.csv", "--label", "y")
    spec = check_written()
    assert spec.trainer.label == {"probabilities": "label"}
    auc = spec.evaluate.metrics["AUC"]
    assert (auc.config, auc.lower_bound) == ({"class_id": 1}, 0.5)
    text = Path("mine/pipeline.yaml").read_text()
    assert 'without class_id; 1 is the rarer, "yes".' in text
    assert 'SparseCategoricalAccuracy: {}   # always answering "no": 0.62' in text


def test_text_label_with_one_class_and_gaps():
    write_csv({"x": NUMBERS, "y": ["yes", None] * 4})
    init("mine", "--from", "data.csv", "--label", "y")
    assert "AUC" not in check_written().evaluate.metrics


def test_text_label_of_three_classes():
    write_csv({"x": NUMBERS, "y": ["a", "b", "c", "a", "a", "b", "c", "a"]})
    init("mine", "--from", "data.csv", "--label", "y")
    assert check_written().evaluate.metrics["SparseCategoricalAccuracy"].lower_bound == 0.5
    assert 'better than always answering "a"' in Path("mine/pipeline.yaml").read_text()


@pytest.mark.parametrize(("label", "kind"), [([1, 5] * 20, "one of 2 classes"), (range(40), "a number")])
def test_label_of_integers(label, kind):
    write_csv({"x": [number % 7 for number in range(40)], "y": list(label)})
    assert f"y: {kind}" in init("mine", "--from", "data.csv", "--label", "y")


def test_decimal_label():
    write_csv({"x": NUMBERS, "y": [200_010.5 + 1000 * number for number in range(8)]})
    assert "predicts    y: a number, from 8 rows\n" in init("mine", "--from", "data.csv", "--label", "y")
    spec = check_written()
    assert spec.trainer.label == "label"
    assert spec.evaluate.metrics["MeanAbsoluteError"].upper_bound == 2000
    assert constants_of() == {"LABEL": "y", "LABEL_MEAN": 203_510, "LABEL_DEVIATION": 2290, "NUMBERS": ["x"]}


def test_many_and_strange_names():
    names = [*STRANGE, *(f"measurement number {number}" for number in range(30))]
    write_csv({**{name: NUMBERS for name in names}, "the label": TEXTS})
    init("mine", "--from", "data.csv", "--label", "the label")
    check_written()
    assert constants_of()["NUMBERS"] == names


def test_parquet():
    table = {
        "vector": [[1.0, 2.5], [0.5, 2.0]] * 4,
        "ragged": [[1], [1, 2]] * 4,
        "flag": [True, False, None, True] * 2,
        "day": pa.array(range(8), pa.date32()),
        "image": [b"\xff\x00", b"\xff\x01"] * 4,
        "y": pa.array(TEXTS).dictionary_encode(),
    }
    parquet.write_table(pa.table(table), "data.parquet")
    output = init("mine", "--from", "data.parquet", "--label", "y")
    assert "left out    ragged: its rows have several values\n" in output
    assert "left out    day: it holds moments" in output
    assert "left out    image: it holds bytes that are not text\n" in output
    assert check_written().data.source[0] == "parquet"
    assert constants_of()["NUMBERS"] == ["vector", "flag"]
    assert '"vector": [1.0, 2.5], "flag": [1]' in Path("mine/ask.py").read_text()


def test_a_folder_of_files_elsewhere():
    Path("big data").mkdir()
    for number in range(2):
        write_csv({"x": NUMBERS, "y": TEXTS}, f"big data/{number}.csv")
    output = init("projects/mine", "--from", "big data", "--label", "y")
    assert "from 16 rows" in output
    assert check_written("projects/mine").data.csv.endswith("big data")
    assert 'csv: "../../big data"' in Path("projects/mine/pipeline.yaml").read_text()


def test_only_the_first_rows_are_read(monkeypatch):
    monkeypatch.setattr("tfx_distribute.pipelines.starter.first_model.MAX_ROWS", 6)
    write_csv({"x": NUMBERS, "y": TEXTS})
    assert "from 6 rows" in init("mine", "--from", "data.csv", "--label", "y")


def test_without_data_it_writes_irises(tmp_path, monkeypatch):
    Path("mine").mkdir()
    monkeypatch.chdir("mine")
    assert "predicts    species: one of 3 classes, from 150 rows\n" in init(".")
    monkeypatch.chdir(tmp_path)
    files = [".gitignore", "README.md", "ask.py", "iris.csv", "model.py", "pipeline.yaml", "test_model.py"]
    assert sorted(os.listdir("mine")) == files
    assert check_written().name == "mine"


@pytest.mark.parametrize("example", init_lib.EXAMPLES)
def test_examples(example):
    """Copies have the names of the project."""
    init("mine", "--example", example)
    for file in Path("mine").iterdir():
        text = file.read_text()
        assert f"examples/{example}" not in text, file
        assert f"runs/{example}" not in text, file
        if file.suffix == ".yaml":
            assert re.search(r"^name: mine(-[a-z-]+)?$", text, re.M)
            words = ["-p", "base_model=latest_blessed"] if file.name == "fine_tune.yaml" else []
            validated = CliRunner().invoke(main, ["validate", str(file), *words])
            assert validated.exit_code == 0, validated.output


def test_rows_without_the_label_are_left_out():
    write_csv({"x": NUMBERS, "gap": [None, *NUMBERS[1:]]})
    made = CliRunner().invoke(main, ["init", "mine", "--from", "data.csv", "--label", "gap"])
    assert made.exit_code == 0, made.output
    assert loader.load("mine/pipeline.yaml").data.require == ["gap"]
    assert CliRunner().invoke(main, ["validate", "mine/pipeline.yaml"]).exit_code == 0


def test_examples_are_those_of_the_checkout(request):
    assert set(init_lib.EXAMPLES) == {folder.name for folder in (request.config.rootpath / "examples").iterdir()}


DATA = {"x": NUMBERS, "one": ["a"] * 8, "rare": [*"aaaaaab", "a"], "own": [*"abcdefgh"], "nan": [*NUMBERS[:7], math.nan]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("My_Model",), "'My_Model' is not a valid name of a pipeline, which has lower-case letters, digits and hyphens, at "
         "most 63; use e.g. my-model"),
        (("taken",), "taken: already exists, and is not an empty folder; use another name, or remove it"),
        (("data.csv/x",), "data.csv"),
        (("mine", "--from", "data.csv"), "--from and --label: belong together; write --from FILE --label COLUMN"),
        (("mine", "--label", "x"), "--from and --label: belong together"),
        (("mine", "--from", "data.csv", "--label", "x", "--example", "taxi"), "--example: an example has data of its own"),
        (("mine", "--from", "data.csv", "--label", "y"),
         "--label y: there is no such column; write one of x, one, rare, own, nan"),
        (("mine", "--from", "data.csv", "--label", "one"), "--label one: every row has the same value; name another column"),
        (("mine", "--from", "data.csv", "--label", "nan"), "--label nan: a row has NaN; remove such rows"),
        (("mine", "--from", "data.csv", "--label", "rare"), "--label rare: 'b' is in one row only"),
        (("mine", "--from", "data.csv", "--label", "own"), "--label own: nearly every row has a text of its own"),
        (("mine", "--from", "data.xlsx", "--label", "x"),
         "--from: data.xlsx has none of the endings .csv and .parquet"),
        (("mine", "--from", "none.csv", "--label", "x"), "--from: none.csv does not exist"),
        (("mine", "--from", "text.parquet", "--label", "x"), "text.parquet is not a Parquet file"),
        (("mine", "--from", "broken.csv", "--label", "x"), "broken.csv, line 2"),
        (("mine", "--from", "single.csv", "--label", "x"), "--label x: there is no column to predict it from"),
    ],
)  # fmt: skip
def test_what_is_refused(words, message):
    write_csv(DATA)
    write_csv({"x": NUMBERS, "y": [1] * 8}, "single.csv")
    Path("broken.csv").write_text("a,b\n1\n")
    Path("text.parquet").write_text("text")
    Path("data.xlsx").write_text("text")
    Path("taken").mkdir()
    Path("taken", "mine.py").write_text("")
    before = sorted(Path().rglob("*"))
    assert message in init(*words, code=2)
    assert sorted(Path().rglob("*")) == before, "nothing is written"


def ask_newest(folder: Path, serving: Path, **row: list[Any]) -> dict[str, Any]:
    """Asks a pushed model as `ask.py` of a project does."""
    import importlib.util

    location = importlib.util.spec_from_file_location("ask", folder / "ask.py")
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module.ask(serving, {**module.ROW, **row})


@pytest.mark.e2e
def test_a_classifier_passes_its_own_test_and_answers(tmp_path):
    """Its test runs the pipeline, and tests/e2e/test_every_day.py evaluates another."""
    chance = random.Random(0)  # noqa: S311
    kinds = [chance.choice(["good", "bad", "ugly"]) for _ in range(300)]
    words = {"good": "this is\nreally fine", "bad": 'not a "nice" thing', "ugly": "ärgerlich, so sad"}
    columns: dict[str, list[Any]] = {
        name: [None if chance.random() < 0.1 else chance.gauss(len(kind), 1) for kind in kinds] for name in STRANGE
    }
    columns |= {f"noise {number}": [chance.randrange(100) for _ in kinds] for number in range(3)}
    columns["shape"] = [None if chance.random() < 0.1 else kind[0] + chance.choice("xy") for kind in kinds]
    columns["a review/text"] = [f"{words[kind]} {chance.random()}" for kind in kinds]
    columns["the kind"] = kinds
    write_csv(columns)
    init("mine", "--from", "data.csv", "--label", "the kind")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "test", "mine"],
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TF_USE_LEGACY"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    serving = tmp_path / "test" / "runs0" / "serving"
    assert ask_newest(tmp_path / "mine", serving, shape=[b"bx"])["class"] in (b"good", b"bad", b"ugly")


@pytest.mark.e2e
def test_a_regression_runs_and_answers_in_the_unit_of_the_label(command, tmp_path):
    """From Parquet. Its own test runs the same pipeline, as that of a classifier."""
    areas = [40 + number % 90 for number in range(300)]
    table = {
        "area": areas,
        "position": [[number / 300, 1.0] for number in range(300)],
        "has garden": [number % 3 == 0 for number in range(300)],
        "price": [3000.0 * area + number for number, area in enumerate(areas)],
    }
    parquet.write_table(pa.table(table), "data.parquet")
    init("houses", "--from", "data.parquet", "--label", "price")
    run = command("run", "houses/pipeline.yaml")
    assert run.code == 0, run.output
    serving = tmp_path / "runs" / "houses" / "serving"
    small, large = (ask_newest(tmp_path / "houses", serving, area=[area])["outputs"] for area in (50, 120))
    assert small.shape == (1,)
    assert small[0] == pytest.approx(150_000, rel=0.2)
    assert large[0] == pytest.approx(360_000, rel=0.2)

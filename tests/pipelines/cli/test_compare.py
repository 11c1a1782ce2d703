"""Tests which comparisons are refused before anything runs, and how others look."""

import json
import math

import pytest
from click.testing import CliRunner
from compared import outcome, unmeasured

from tfx_distribute.pipelines.cli import compare
from tfx_distribute.pipelines.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "num_workers=1,2"], "-p num_workers=2: num_workers: strategy 'default' trains in one process"),
        (["-p", "rate=0.1,fast"], "-p rate=fast: rate is 0.1 in the pipeline file; write a float"),
        (["-p", "epochs=1,2"], "write --train-steps instead"),
        (["--train-steps", "1"], "1 is not in the range"),
        (["--root", "runs/a*"], "has the character '*'"),
        (["--root", "pipeline.yaml"], "is a file"),
    ],
)
def test_mistakes(project, arguments, message):
    before = sorted(project.rglob("*"))
    result = CliRunner().invoke(main, ["compare", "pipeline.yaml", *arguments])
    assert (result.exit_code, message in result.output) == (2, True), result.output
    assert sorted(project.rglob("*")) == before


def test_data_that_cannot_be_read(project):
    (project / "data" / "a.csv").write_text("")
    result = CliRunner().invoke(main, ["compare", "pipeline.yaml"])
    assert (result.exit_code, "a.csv is empty" in result.output) == (2, True)


def example():
    return [
        outcome(1000, 1, num_workers=1, measured={"input_share": 0.1, "loss": math.nan}),
        outcome(1500, 2, num_workers=2, measured={"batch": 64, "wait_share": 0.5, "loss": None}),
        unmeasured("skipped", "too many", num_workers=300),
        unmeasured("failed", "no memory", num_workers=3),
        unmeasured("not run", "", num_workers=4),
    ]


def test_table():
    table, reasons, advice = compare.as_text(example(), 200).split("\n\n")
    assert table.splitlines() == [
        "num_workers  batch    examples/s  efficiency  input  peers  loss",
        "1            32       1,000       1.00        10%    -      nan",
        "2            64       1,500       0.75        -      50%    -",
        "300          skipped",
        "3            failed",
        "4            not run",
    ]
    assert reasons.splitlines() == ["skipped: num_workers=300: too many", "failed: num_workers=3: no memory"]
    assert all(line.startswith("* ") for line in advice.splitlines())


def test_nothing_measured():
    text = compare.as_text([unmeasured("failed", "no memory")], 200)
    assert text.splitlines()[1:] == ["failed", "", "failed: the training: no memory"]


def test_document(request):
    document = compare.as_document("mine", example(), 200)
    combinations = document["combinations"]
    assert len({tuple(each) for each in combinations}) == 1
    assert [each["status"] for each in combinations] == ["measured", "measured", "skipped", "failed", "not run"]
    assert [each["efficiency"] for each in combinations] == [1.0, 0.75, None, None, None]
    assert json.loads(json.dumps(document))["combinations"][3]["examples_per_second"] is None
    text = (request.config.rootpath / "docs" / "scaling.md").read_text()
    for name in [*document, *combinations[0]]:
        assert f"`{name}`" in text, name

"""Tests which comparisons are refused before anything runs."""

import pytest
from click.testing import CliRunner

from tfx_distribute.pipelines.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "num_workers=1,2"], "-p num_workers=2: num_workers: strategy 'default' trains in one process"),
        (["-p", "rate=0.1,fast"], "-p rate=fast: rate is 0.1 in the pipeline file; write a value of type float"),
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

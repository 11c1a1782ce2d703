"""Tests runs that their data stop, and the commands about the schema."""

import re

import pytest

PIPELINE = """\
name: mine
module: model.py
data: {csv: data%s}
validate: {%s}
trainer: {label: y, parameters: {epochs: 1, per_replica_batch_size: 2}}
"""


def write_cities(folder, *cities):
    rows = [f"{number},{cities[number % len(cities)]},{2 * number}" for number in range(40)]
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "a.csv").write_text("\n".join(["x,city,y", *rows]) + "\n")


@pytest.mark.e2e
@pytest.mark.timeout(600)  # several runs
def test_a_run_is_stopped_and_its_data_accepted(command, tmp_path):
    file, root = tmp_path / "pipeline.yaml", ("--root", tmp_path / "runs")
    (tmp_path / "model.py").write_text("def build_model(context): ...\n")
    file.write_text(PIPELINE % ("", "drift: {town: 0.1}"))
    write_cities(tmp_path, "rome", "oslo")
    stopped = command("run", file, *root)
    assert stopped.code == 4, stopped.output
    assert "ExampleValidator        stopped" in stopped.output
    assert "validate.drift: there is no feature 'town'; there are city, x, y" in stopped.output

    accepted = command("schema", "accept", file, *root)
    assert accepted.code == 0, accepted.output
    assert f"write schema_file: schema.pbtxt under data in {file}" in accepted.output
    assert command("schema", "show", *root).output.endswith((tmp_path / "schema.pbtxt").read_text())
    refused = command("schema", "accept", file, *root)
    assert (refused.code, "schema.pbtxt: exists; write schema_file" in refused.output) == (2, True)

    file.write_text(PIPELINE % (", schema_file: schema.pbtxt", "anomalies: {city: fail}"))
    assert "the data agree with it" in command("schema", "diff", file, *root).output
    write_cities(tmp_path, "rome", "paris")
    stopped = command("run", file, *root)
    assert stopped.code == 4, stopped.output
    assert "city (train): Examples contain values missing from the schema: paris (~" in stopped.output
    assert re.search(r"^state +stopped$", command("runs", "show", *root).output, re.MULTILINE)
    assert command("report", *root, "-o", tmp_path / "report.html").code == 0
    report = (tmp_path / "report.html").read_text()
    assert "Unexpected string values" in report
    assert "which has rejected the data and stopped the run" in report

    changes = command("schema", "diff", file, *root).output
    assert re.findall(r"^[+-] .*", changes, re.MULTILINE) == ['+  value: "paris"']
    assert command("schema", "accept", file, *root).code == 0
    again = command("run", file, *root)
    assert again.code == 1, "its build_model makes no model"
    assert "✓ ExampleValidator" in again.output


@pytest.mark.parametrize(
    ("validate", "message"),
    [
        ("drift: {x: 2}", "validate.drift.x: 2 is not allowed"),
        ("anomalies: {x: ignore}", "validate.anomalies.x: 'ignore' is not allowed"),
        ("limits: {}", "unknown key 'validate.limits'; allowed: anomalies, drift, skew, stop_on_anomalies"),
    ],
)
def test_rules_that_are_refused(command, tmp_path, validate, message):
    (tmp_path / "model.py").write_text("def build_model(context): ...\n")
    write_cities(tmp_path, "rome")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE % ("", validate))
    refused = command("validate", tmp_path / "pipeline.yaml")
    assert refused.code == 2
    assert message in refused.output, refused.output


def test_schema_of_a_pipeline_that_has_not_run(command, tmp_path):
    (tmp_path / "model.py").write_text("def build_model(context): ...\n")
    write_cities(tmp_path, "rome")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE % ("", ""))
    refused = command("schema", "accept", tmp_path / "pipeline.yaml")
    assert (refused.code, "there are no runs in" in refused.output) == (2, True), refused.output

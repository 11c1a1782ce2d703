"""Tests rules about data that are refused, and the commands about the schema."""

import pytest
from small_project import PIPELINE, write_project


@pytest.fixture
def file(tmp_path):
    return write_project(tmp_path)


@pytest.mark.parametrize(
    ("validate", "message"),
    [
        ("drift: {x: 2}", "validate.drift.x: 2 is not allowed"),
        ("anomalies: {x: ignore}", "validate.anomalies.x: 'ignore' is not allowed"),
        ("limits: {}", "unknown key 'validate.limits'; allowed: anomalies, drift, skew, stop_on_anomalies"),
    ],
)
def test_rules_that_are_refused(command, file, validate, message):
    file.write_text(f"{PIPELINE}validate: {{{validate}}}\n")
    refused = command("validate", file)
    assert refused.code == 2
    assert message in refused.output, refused.output


def test_schema_of_a_pipeline_that_has_not_run(command, file):
    refused = command("schema", "accept", file)
    assert (refused.code, "there are no runs in" in refused.output) == (2, True), refused.output

"""Runs a pipeline as new days of data come, and for past ones."""

import re

import pytest
from daily_data import write_day
from small_project import LINEAR_MODEL

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # three runs


PIPELINE = """\
name: mine
module: model.py
data: {csv: '%s/{YYYY}-{MM}-{DD}.csv', window: 2, missing: skip}
trainer:
  label: y
  parameters: {epochs: 1}
"""


def test_new_days_and_past_ones(command, tmp_path):
    days, file = tmp_path / "days", tmp_path / "pipeline.yaml"
    for name in ("2026-11-23", "2026-11-24", "2026-11-26"):
        write_day(days, name, columns=("x", "y"))
    file.write_text(PIPELINE % days)
    (tmp_path / "model.py").write_text(LINEAR_MODEL)
    root = ("--root", tmp_path / "runs")

    newest = command("run", file, *root)
    assert newest.code == 0, newest.output
    assert "spans      2026-11-26, without 2026-11-25" in newest.output
    again = command("run", file, *root, "--if-new")
    assert (again.code, again.output.count("CsvExampleGen")) == (0, 0)
    assert re.match(r"no new span: 2026-11-26 is the newest, and run \S+ has read it", again.output)

    gone = command("run", file, *root, "-p", "span=2026-11-25")
    assert gone.code == 2
    assert "span 2026-11-25 does not exist at" in gone.output

    past = command("run", file, *root, "--backfill", "2026-11-24..2026-11-26", new_process=True)
    assert past.code == 0, past.output
    assert re.findall(r"^(?:span|without) .*", past.output, re.MULTILINE) == [
        "without 2026-11-25, which have no data",
        "span 2026-11-24",
        "span 2026-11-26",
    ]
    assert "spans      2026-11-23 to 2026-11-24 (2 spans)" in past.output
    assert re.search(r"CsvExampleGen +cached", past.output), "the day that the first run has read"

    shown = command("runs", "show", *root)
    assert re.search(r"^spans +2026-11-26, without 2026-11-25$", shown.output, re.MULTILINE), shown.output


@pytest.mark.parametrize(
    ("backfill", "message"),
    [
        ("2026-11-25", "is not a range; write FIRST..LAST"),
        ("2026-11-01..2026-11-02", "no data found at"),
        ("yesterday..today", "'today' is not a span of"),
    ],
)
def test_backfills_that_are_refused(backfill, message, command, tmp_path):
    (tmp_path / "model.py").write_text("def build_model(context): ...\n")
    data = f"csv: '{tmp_path}/days/{{YYYY}}-{{MM}}-{{DD}}'"
    (tmp_path / "p.yaml").write_text(
        f"name: mine\nmodule: model.py\ndata: {{{data}}}\ntrainer: {{label: y, parameters: {{epochs: 1}}}}\n"
    )
    refused = command("run", tmp_path / "p.yaml", "--backfill", backfill)
    assert refused.code == 2
    assert message in refused.output

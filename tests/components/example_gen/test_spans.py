"""Tests which days, hours and numbers are found in paths, and read."""

import os

import pandas as pd
import pytest
from ingestion import resolved, rows
from tfx.dsl.io import fileio

from tfx_distribute.components.example_gen import spans
from tfx_distribute.components.example_gen.spans import Chosen, Window
from tfx_distribute.pipelines.spec import data_checks
from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError


def choose(path, *arguments):
    return spans.choose(str(path), Window(*arguments))


@pytest.fixture
def days(tmp_path):
    """Returns a pattern of days, of which one has two versions and one is missing."""
    for name in ("2025-11-29/v1", "2025-11-30/v9", "2025-11-30/v10", "2025-12-02/v1", "2025-12-99/v1", "notes/v1"):
        (tmp_path / "days" / name).mkdir(parents=True)
        (tmp_path / "days" / name / "a.csv").write_text(f"x\n{name[8:10]}.{name[12:]}\n" if name != "notes/v1" else "?")
    return str(tmp_path / "days" / "{YYYY}-{MM}-{DD}" / "v{VERSION}")


def test_the_newest_day_and_its_highest_version(days):
    assert spans.name_of(days, max(spans.find(days))) == "2025-12-02"
    chosen = choose(days, 2, False, "2025-11-30")
    assert [path.rpartition("days/")[2] for path in chosen.paths] == ["2025-11-29/v1", "2025-11-30/v10"]
    assert chosen.describe() == "2025-11-29 to 2025-11-30 (2 spans)"


def test_a_day_is_missing_in_the_window(days):
    with pytest.raises(DataError, match="no data of 2025-12-01, which is in the window of 3 up to 2025-12-02"):
        choose(days, 3)
    chosen = choose(days, 4, True)
    assert chosen.describe() == "2025-11-29 to 2025-12-02 (3 spans), without 2025-12-01"


@pytest.mark.parametrize("last", ["2025-12-01", "2030-01-01"], ids=["between", "in the future"])
def test_a_last_day_that_is_not_there_is_never_skipped(days, last):
    with pytest.raises(DataError, match=f"span {last} does not exist at .*; existing spans: 2025-11-29, 2025-11-30"):
        choose(days, 1, True, last)


@pytest.mark.parametrize(
    ("path", "time_zone", "scheduled_at", "name"),
    [
        ("{YYYY}-{MM}-{DD}", "UTC", "2025-03-01T00:00:00Z", "2025-02-28"),
        ("{YYYY}-{MM}-{DD}", "UTC", "2025-03-01T23:59:59+00:00", "2025-02-28"),
        ("{YYYY}-{MM}-{DD}", "Asia/Tokyo", "2025-02-28T18:00:00Z", "2025-02-28"),
        ("{YYYY}-{MM}-{DD}", "America/New_York", "2025-03-01T03:00:00Z", "2025-02-27"),
        ("{YYYY}{MM}{DD}-{HH}", "UTC", "2025-03-01T00:10:00Z", "2025-02-28T23"),
    ],
)
def test_the_last_span_that_had_ended_when_a_run_was_to_start(path, time_zone, scheduled_at, name):
    window = Window(last="scheduled", time_zone=time_zone, scheduled_at=scheduled_at)
    assert spans.name_of(path, spans.parse_last(path, window)) == name


def test_a_scheduled_run_without_data_of_its_day_is_refused(days, tmp_path):
    window = Window(last="scheduled", scheduled_at="2025-12-02T00:30:00Z")
    with pytest.raises(DataError, match="span 2025-12-01 does not exist"):
        spans.choose(days, window)
    # Started by hand, it is scheduled for now.
    (tmp_path / "2020-01-01").mkdir()
    path = str(tmp_path / "{YYYY}-{MM}-{DD}")
    yesterday = spans.name_of(path, spans.parse_last(path, Window(last="scheduled")))
    with pytest.raises(DataError, match=f"span {yesterday} does not exist"):
        choose(path, 1, True, "scheduled")


@pytest.mark.parametrize("unknown", ["", "{{$.pipeline_job_schedule_time_utc}}"])
def test_a_platform_that_does_not_provide_the_scheduled_time(days, unknown):
    with pytest.raises(ConfigurationError, match=r"needs the scheduled time of the run.*from version 2\.17"):
        spans.choose(days, Window(last="scheduled", scheduled_at=unknown))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("{YYYY}/{MM}/{DD}", "2025-1-1x"),
        ("{YYYY}/{MM}/{DD}", "2025-02-30"),
        ("{YYYY}{MM}{DD}-{HH}", "2025-11-30"),
        ("{SPAN}", "2025-11-30"),
        ("{SPAN}", "-1"),
    ],
)
def test_a_name_that_is_no_span(path, name):
    with pytest.raises(ConfigurationError, match="is not a span of .*; write (e.g. 2026-11-25|a number)"):
        spans.parse(path, name)


@pytest.mark.parametrize(
    "path",
    ["{YYYY}-{MM}", "{VERSION}", "{HH}", "{YYYY}-{MM}-{DD}/{DD}", "{SPAN}/{VERSION}/{VERSION}", "{SPAN}/{YYYY}-{MM}-{DD}"],
)
def test_a_pattern_that_is_no_span(path):
    with pytest.raises(ConfigurationError, match="write"):
        choose(path)


def test_files_of_hours_over_midnight(tmp_path):
    for name in ("20251130-23.csv", "20251201-00.csv", "20251201-01.csv", "20251201-1.csv"):
        (tmp_path / name).write_text("x\n1\n")
    chosen = choose(tmp_path / "{YYYY}{MM}{DD}-{HH}.csv", 2, False, "2025-12-01T00")
    assert chosen.names == ("2025-11-30T23", "2025-12-01T00")
    assert [os.path.basename(path) for path in chosen.paths] == ["20251130-23.csv", "20251201-00.csv"]


def test_numbers_in_object_storage_where_folders_end_with_a_slash(monkeypatch):
    tree = {"gs://bucket/in": ["007/", "010/", "x/"], "gs://bucket/in/007": ["x/"], "gs://bucket/in/010": ["x/", "y"]}
    monkeypatch.setattr(fileio, "isdir", tree.__contains__)
    monkeypatch.setattr(fileio, "listdir", tree.__getitem__)
    chosen = spans.choose("gs://bucket/in/{SPAN}/x/", Window())
    assert chosen == Chosen(("gs://bucket/in/010/x",), ("10",))


def test_a_path_without_fields_is_taken_as_it_is():
    assert choose("/a/{b}") == Chosen(("/a/{b}",))
    assert choose("/a/{b}").describe() == ""


def test_examples_of_a_window(days, tmp_path):
    data = Data(csv=days, window=2, missing="skip", span="2025-11-30")
    assert sorted(row["x"][0] for row in rows(data, tmp_path / "out")) == [pytest.approx(29.1), pytest.approx(30.10)]
    assert [os.path.basename(path) for path in data_checks.choose_spans(data).paths] == ["v1", "v10"]


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_days_with_other_columns(source, tmp_path):
    """A column that a day lacks has no values in its examples."""
    for name, row in (("2025-11-01", {"x": [1.5], "y": [1]}), ("2025-11-02", {"new": ["a"], "x": [2.5]})):
        (tmp_path / name).mkdir()
        getattr(pd.DataFrame(row), f"to_{source}")(tmp_path / name / "data", index=False)
    settings = {source: str(tmp_path / "{YYYY}-{MM}-{DD}"), "window": 2}
    with pytest.raises(DataError, match="it lacks y and it adds new"):
        rows(Data(**settings), tmp_path / "refused")
    found = sorted(rows(Data(**settings, missing="skip"), tmp_path / "out"), key=lambda row: row["x"])
    assert [{name: value for name, value in row.items() if value} for row in found] == [
        {"x": [1.5], "y": [1]},
        {"x": [2.5], "new": [b"a"]},
    ]


def test_a_new_day_changes_the_cache_key_and_an_earlier_one_does_not(days, tmp_path):
    def key(**settings):
        return resolved(Data(csv=days, **settings))["input_fingerprint"]

    newest, fixed = key(), key(span="2025-11-30")
    (tmp_path / "days" / "2025-12-03" / "v1").mkdir(parents=True)
    (tmp_path / "days" / "2025-12-03" / "v1" / "a.csv").write_text("x\n3\n")
    assert key() != newest
    assert key(span="2025-11-30") == fixed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"csv": "/d/{YYYY}-{MM}"}, "its fields are not a span"),
        ({"csv": "/d/{YYYY}-{MM}-{DD}", "window": 0}, "greater than or equal to 1"),
        ({"csv": "/d/{YYYY}-{MM}-{DD}", "span": "tomorrow"}, "is not a span of"),
        ({"csv": "/d/a.csv", "span": "2025-11-30"}, "span: goes with a path that has {YYYY}, {MM} and {DD}"),
        ({"csv": "/d/a.csv", "window": 2}, "window: goes with a path"),
        ({"csv": "/d/{SPAN}", "span": "scheduled"}, "needs a path with a date"),
        ({"csv": "/d/{YYYY}-{MM}-{DD}", "time_zone": "Tokyo"}, "'Tokyo' is not a time zone; write e.g. UTC"),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(ValueError, match=message):
        Data(**settings)

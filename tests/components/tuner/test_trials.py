"""Tests the table of trials and its files."""

import json

from tfx_distribute.components.tuner import trials
from tfx_distribute.components.tuner.trials import SearchResult, Trial

TRIALS = [
    Trial("0", "COMPLETED", {"rate": 0.0123456, "units": 16}, score=0.5, step=10),
    Trial("1", "FAILED", {"rate": 1e-05, "units": 8}, message="too few units"),
    Trial("2", "COMPLETED", {"rate": 0.0123456, "units": 16}, score=0.75, step=20, epochs=2, continues="0"),
]


def test_best_trial_is_first_and_failed_ones_are_last():
    assert [trial.trial for trial in trials.ranked(TRIALS, "max")] == ["2", "0", "1"]
    assert [trial.trial for trial in trials.ranked(TRIALS, "min")] == ["0", "2", "1"]


def test_table():
    table = trials.format_table(SearchResult("val_accuracy", "max", trials.ranked(TRIALS, "max")))
    assert table.splitlines() == [
        "trial       val_accuracy  steps      rate  units",
        "2 (from 0)          0.75     20  0.012346     16",
        "0                    0.5     10  0.012346     16",
        "1                 failed      -     1e-05      8",
    ]


def test_files():
    assert trials.from_lines(trials.to_lines(TRIALS)) == TRIALS
    assert json.loads(trials.to_records(TRIALS)) == [
        {"trial_id": "0", "score": 0.5, "rate": 0.0123456, "units": 16},
        {"trial_id": "2", "score": 0.75, "rate": 0.0123456, "units": 16},
    ]

"""Tests the messages about runs."""

import pytest

from tfx_distribute.pipelines.notify import message


@pytest.mark.parametrize(
    ("code", "before", "outcome"),
    [
        (0, "succeeded", "succeeded"),
        (0, "recovered", "succeeded"),
        *((0, before, "recovered") for before in ("failed", "stopped", "not_blessed", "canceled", "interrupted")),
        (1, "succeeded", "failed"),
        (2, "failed", "failed"),
        (3, "succeeded", "not_blessed"),
        (4, "failed", "stopped"),
        (130, "succeeded", ""),
        (143, "failed", ""),
    ],
)
def test_outcomes(code, before, outcome):
    assert message.find_outcome(code, before) == outcome


@pytest.mark.parametrize(
    ("outcome", "when", "told"),
    [
        ("failed", ("failed", "stopped"), "failed"),
        ("stopped", ("failed",), ""),
        ("recovered", ("recovered", "succeeded"), "recovered"),
        ("recovered", ("succeeded",), "succeeded"),
        ("recovered", ("failed",), ""),
        ("", ("failed",), ""),
    ],
)
def test_outcomes_that_are_told(outcome, when, told):
    assert message.choose_outcome(outcome, when) == told


def test_a_failed_run():
    facts = {
        "run": "20261128-021500-000000",
        "spans": "2026-11-21 to 2026-11-27 (7 spans)",
        "reason": "Trainer: ValueError: no such layer\n  at model.py, line 7, in build_model",
        "model": "",
        "host": "train-1",
    }
    assert message.compose("taxi", "failed", facts) == message.Message(
        "taxi: failed",
        "run: 20261128-021500-000000\n"
        "spans: 2026-11-21 to 2026-11-27 (7 spans)\n"
        "reason: Trainer: ValueError: no such layer\n"
        "  at model.py, line 7, in build_model\n"
        "host: train-1",
        is_good=False,
    )


def test_long_reasons_are_cut():
    reason = "\n".join(["x" * 1000, "", *map(str, range(10))])
    lines = message.compose("taxi", "stopped", {"reason": reason, "host": "train-1"}).body.splitlines()
    assert lines == [f"reason: {'x' * message.MAX_LINE}...", "0", "1", "2", "3", "...", "host: train-1"]

"""Tests the messages about runs."""

import pytest

from tfx_distribute.pipelines.notify import message
from tfx_distribute.pipelines.notify.message import Facts, MetricLine


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
    facts = Facts(
        "taxi",
        "failed",
        "train-1",
        run="20261128-021500-000000",
        reason="Trainer: ValueError: no such layer\n  at model.py, line 7, in build_model",
        data={"spans": "2026-11-21 to 2026-11-27 (7 spans)"},
        report="tfx-distribute report 20261128-021500-000000 --root runs/taxi",
        log="/srv/taxi/runs/taxi/logs/20261128-021500-000000/run.log",
    )
    assert message.compose(facts) == message.Message(
        "taxi: failed",
        "run: 20261128-021500-000000\n"
        "spans: 2026-11-21 to 2026-11-27 (7 spans)\n"
        "reason: Trainer: ValueError: no such layer\n"
        "  at model.py, line 7, in build_model\n"
        "report: tfx-distribute report 20261128-021500-000000 --root runs/taxi\n"
        "log: /srv/taxi/runs/taxi/logs/20261128-021500-000000/run.log\n"
        "host: train-1",
        is_good=False,
    )


def test_a_model_that_is_not_blessed():
    metrics = (
        MetricLine("BinaryAccuracy", 0.90625, ">= 0.95  not met", 0.9609375),
        MetricLine("ExampleCount", 128.0, before=120.0),
        MetricLine(
            "Precision", 0.72, ">= 0.43, change of at least -0.2  not met: -0.23 from the blessed model's 0.95", 0.31
        ),
        MetricLine("AUC", float("nan"), ">= 0.5  not met: the value is not finite"),
    )
    composed = message.compose(Facts("taxi", "not_blessed", "train-1", metrics=metrics, model="/runs/model/7"))
    assert composed.title == "taxi: not blessed"
    assert composed.body == (
        "BinaryAccuracy: 0.90625 (>= 0.95 not met; last run 0.960938)\n"
        "ExampleCount: 128 (last run 120)\n"
        "Precision: 0.72 (>= 0.43, change of at least -0.2 not met: -0.23 from the blessed model's 0.95; last run 0.31)\n"
        "AUC: nan (>= 0.5 not met: the value is not finite)\n"
        "model: /runs/model/7\n"
        "host: train-1"
    )


@pytest.mark.parametrize("outcome", ["succeeded", "not_blessed"])
def test_a_model_that_was_not_compared(outcome):
    facts = Facts("taxi", outcome, "train-1", unusable_baseline="its AUC is not finite", model="/runs/model/7")
    assert message.compose(facts).body == (
        "baseline: not compared with the latest blessed model: its AUC is not finite\nmodel: /runs/model/7\nhost: train-1"
    )


@pytest.mark.parametrize(("outcome", "is_good"), [("stopped", False), ("recovered", True), ("succeeded", True)])
def test_other_outcomes(outcome, is_good):
    composed = message.compose(Facts("taxi", outcome, "train-1"))
    assert composed == message.Message(f"taxi: {outcome}", "host: train-1", is_good)


def test_long_reasons_are_cut():
    reason = "\n".join(["x" * 1000, "", *map(str, range(10))])
    lines = message.compose(Facts("taxi", "stopped", "train-1", reason=reason)).body.splitlines()
    assert lines == [f"reason: {'x' * message.MAX_LINE}...", "0", "1", "2", "3", "...", "host: train-1"]

import math

import pytest
from compared import comparison, outcome

from tfx_distribute.pipelines.compare import report
from tfx_distribute.pipelines.compare.comparison import FAILED, SKIPPED, Outcome, common_loss, differs
from tfx_distribute.pipelines.compare.measurement import LossPoint


def test_efficiency_is_against_the_smallest_of_its_series():
    result = comparison(
        outcome(1500, 4, num_workers=4),
        outcome(800, 2, num_workers=2),
        outcome(900, 1, num_workers=1, strategy="one_device"),
        Outcome({"strategy": "one_device", "num_workers": 2}, SKIPPED, "one process"),
        Outcome({"strategy": "multi_worker_mirrored", "num_workers": 1}, FAILED, "no memory"),
    )
    assert [(each.index, each.base, each.efficiency) for each in result.measured] == [
        (0, 1, pytest.approx(0.9375)),
        (1, 1, 1.0),
        (2, 2, 1.0),
    ]
    assert [[each.index for each in series] for series in result.series()] == [[1, 0], [2]]
    assert result.varied == ("num_workers", "strategy")
    assert result.label(result.outcomes[1]) == "num_workers=2 strategy=multi_worker_mirrored"


def test_trainings_that_differ_in_more_than_their_size_are_no_series():
    result = comparison(outcome(100, 1, seed=1), outcome(190, 2, seed=2))
    assert [each.efficiency for each in result.measured] == [1.0, 1.0]


def test_unknown_devices_have_no_efficiency():
    (measured,) = comparison(outcome(100, 0, processes=1)).measured
    assert measured.efficiency is None


@pytest.mark.parametrize(("target", "expected"), [(None, 0.4), (0.5, 0.5), (0.1, 0.1)])
def test_time_to_a_loss(target, expected):
    slow = {"losses": (LossPoint(10, 5.0, 0.9), LossPoint(20, 9.0, 0.4))}
    fast = {"losses": (LossPoint(5, 0.5, math.inf), LossPoint(10, 1.0, 0.3))}
    result = comparison(outcome(100, seed=1, measured=slow), outcome(100, seed=2, measured=fast), target_loss=target)
    assert (result.target_loss, result.target_given) == (expected, target is not None)
    assert [each.to_loss and each.to_loss.step for each in result.measured] == ([None, None] if target == 0.1 else [20, 10])


def test_a_training_that_diverged_is_never_the_best():
    diverged = outcome(200, seed=2, measured={"losses": (LossPoint(50, 1.0, 1e20), LossPoint(101, 2.0, math.nan))})
    result = comparison(outcome(100, seed=1), diverged)
    assert result.target_loss == 0.25, "that of the others"
    assert [bool(each.to_loss) for each in result.measured] == [True, False]
    assert result.best(lambda each: 1 / each.measurement.examples_per_second).index == 0
    assert report.as_text(result).splitlines()[2].split()[6] == "nan"
    advice = report.as_document(result)["advice"]
    assert "seed=2 diverged: its loss is nan by step 101, so it is not recommended" in advice
    assert [sentence for sentence in advice if "fastest" in sentence] == ["fastest: seed=1, 100 examples/s"]


def test_there_is_no_common_loss_if_one_training_has_none():
    result = comparison(outcome(100, seed=1), outcome(100, seed=2, measured={"losses": ()}))
    assert result.target_loss is None
    assert common_loss([]) is None


def test_cost_counts_a_machine_for_each_process():
    (measured,) = comparison(outcome(1000, 2, processes=4, measured={"batch": 100})).measured
    assert measured.machine_hours_per_million_examples == pytest.approx(4 * 1000 / 3600)
    assert measured.machine_hours_per_1000_steps == pytest.approx(4 * 100 / 3600)
    assert measured.machine_hours_to_loss == pytest.approx(4 * 50 / 3600)


@pytest.mark.parametrize(("speed", "spread", "expected"), [(90, 0.05, True), (95, 0.05, False), (80, 0.2, False)])
def test_speeds_differ_by_more_than_they_vary(speed, spread, expected):
    result = comparison(outcome(100, seed=1), outcome(speed, seed=2, measured={"spread": spread}))
    assert differs(*result.measured) is differs(*reversed(result.measured)) is expected


def test_nothing_measured():
    result = comparison(Outcome({"seed": 1}, FAILED, "no memory"))
    assert (result.measured, result.target_loss, list(result.series()), result.best(lambda each: 1.0)) == (
        (),
        None,
        [],
        None,
    )

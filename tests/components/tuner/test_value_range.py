"""Tests the values of one hyperparameter: how many there are, and which."""

import math

import pytest

from tfx_distribute.components.tuner import value_range
from tfx_distribute.components.tuner.value_range import ValueRange


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (ValueRange(min=0.0, max=0.3, step=0.1), [0.0, 0.1, 0.2, 0.3]),
        (ValueRange(min=0.1, max=0.3, step=0.2), [0.1, 0.3]),
        (ValueRange(min=-0.3, max=0.3, step=0.3), [-0.3, 0.0, 0.3]),
        (ValueRange(min=0, max=1, step=0.4), [0.0, 0.4, 0.8]),
        (ValueRange(min=0, max=1, step=1 / 11), [pytest.approx(index / 11) for index in range(11)] + [1.0]),
        (ValueRange(min=0.001, max=1.0, step=10, sampling="log"), [0.001, 0.01, 0.1, 1.0]),
        (ValueRange(min=0.001, max=0.9, step=10, sampling="log"), [0.001, 0.01, 0.1]),
        (ValueRange(min=0.1, max=0.8, step=2, sampling="reverse_log"), [0.8, 0.7, 0.5, 0.1]),
    ],
)
def test_steps_end_with_max_if_they_reach_it(values, numbers):
    assert value_range.list_steps(values) == numbers
    assert value_range.count(values, float) == len(numbers)
    assert value_range.find_problem(values, 0.1) == ""


@pytest.mark.parametrize(
    ("values", "kind", "count"),
    [
        (ValueRange(min=1, max=3), int, 3),
        (ValueRange(min=1, max=3, sampling="log"), int, 3),
        (ValueRange(min=1, max=64, step=4, sampling="log"), int, 4),
        (ValueRange(min=1, max=3), float, math.inf),
        (ValueRange(values=(False, True)), bool, 2),
    ],
)
def test_whole_numbers_are_counted_without_a_step_too(values, kind, count):
    assert value_range.count(values, kind) == count

"""Tests where plots draw values."""

import pytest

from tfx_distribute.components.report import plots
from tfx_distribute.components.report.data import Curve, Curves
from tfx_distribute.components.tuner.trials import SearchResult, Trial


def test_larger_values_are_higher_and_later_ones_further_right():
    (plot,) = plots.plot_metrics(Curves(metrics=(Curve("loss", "train", ((0.0, 2.0), (460.0, 1.0))),)))
    ((first, second),) = (line.points for line in plot.lines)
    assert first[0] == plot.left < second[0] <= plot.right
    assert first[1] < second[1] <= plot.bottom
    assert [text for _, text in plot.x_ticks] == ["0", "100", "200", "300", "400"]


def test_steps_are_whole_numbers():
    (plot,) = plots.plot_metrics(Curves(metrics=(Curve("loss", "train", ((1.0, 2.0), (2.0, 1.0))),)))
    assert [text for _, text in plot.x_ticks] == ["1", "2"]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [((0.001, 0.02, 1.0), ["0.001", "0.01", "0.1", "1"]), (("relu", "tanh", "relu"), ["relu", "tanh"])],
)
def test_trials_over_orders_of_magnitude_and_over_texts(values, ticks):
    trials = [Trial(str(number), "COMPLETED", {"x": value}, score=number) for number, value in enumerate(values)]
    (plot,) = plots.plot_trials(SearchResult("val_loss", "min", trials))
    assert [text for _, text in plot.x_ticks] == ticks
    assert [len(line.points) for line in plot.lines] == [2, 1], "the best has a colour of its own"

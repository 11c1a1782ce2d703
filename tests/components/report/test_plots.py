"""Tests where plots draw values."""

from tfx_distribute.components.report import plots
from tfx_distribute.components.report.data import Curve, Curves


def test_larger_values_are_higher_and_later_ones_further_right():
    (plot,) = plots.plot_metrics(Curves(metrics=(Curve("loss", "train", ((0.0, 2.0), (460.0, 1.0))),)))
    ((first, second),) = (line.points for line in plot.lines)
    assert first[0] == plot.left < second[0] <= plot.right
    assert first[1] < second[1] <= plot.bottom
    assert [text for _, text in plot.x_ticks] == ["0", "100", "200", "300", "400"]


def test_steps_are_whole_numbers():
    (plot,) = plots.plot_metrics(Curves(metrics=(Curve("loss", "train", ((1.0, 2.0), (2.0, 1.0))),)))
    assert [text for _, text in plot.x_ticks] == ["1", "2"]

"""Computes the plots of a report, which the page draws as inline SVG.

Lines have the colours of the page's style sheet, so that they follow light and dark
mode.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tfx_distribute.components.report.data import Curve, Curves, Feature

NUM_COLORS = 8  # --c0 to --c7 in the style sheet
MAX_MARKS = 30  # points of a line up to which each has a mark
_RIGHT, _TOP, _BOTTOM = 12, 8, 38  # margins; that on the left is for the numbers

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """A series of points in one colour.

    Attributes:
      radius: Size of the marks; 0 for none.
      is_filled: True to fill the area below the line.
    """

    color: int
    points: Points
    radius: float = 0.0
    is_filled: bool = False


@dataclass(frozen=True)
class Plot:
    """A plot with all places in the units of its drawing.

    Attributes:
      bottom: Height of the horizontal axis.
      x_ticks: Place and text of each number at the horizontal axis.
      marks: Places of dashed vertical lines.
      legend: Name of each series -> number of its colour in the style sheet.
    """

    title: str
    width: int
    height: int
    left: int
    bottom: int
    label: str
    lines: tuple[Line, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    marks: tuple[float, ...]
    legend: tuple[tuple[str, int], ...]

    @property
    def right(self) -> int:
        """Right end of the horizontal axis."""
        return self.width - _RIGHT


def plot_metrics(curves: Curves) -> list[Plot]:
    """Plots each metric: a line for each process and try, and marks of restarts."""
    names = dict.fromkeys(curve.metric for curve in curves.metrics)
    by_name = {name: [curve for curve in curves.metrics if curve.metric == name] for name in names}
    return [_plot_curves(name, of_metric, curves.restarts) for name, of_metric in by_name.items()]


def plot_throughput(curves: Curves) -> Plot | None:
    """Plots the examples per second of each process; None if they are unknown."""
    if not curves.throughput:
        return None
    return _plot_curves("examples per second", curves.throughput, curves.restarts, from_zero=True)


def plot_feature(splits: Sequence[tuple[int, str, Feature]]) -> Plot | None:
    """Plots the distribution of a number; None if it is unknown, or one of texts.

    `splits` has number, name and feature of each; the number decides on the colour.
    """
    lines: list[Line] = []
    for number, _, feature in splits:
        histogram = feature.histogram
        if histogram and histogram.edges and any(histogram.counts) and all(map(math.isfinite, histogram.edges)):
            edges, shares = histogram.edges, histogram.shares
            steps = [
                (edge, share) for bounds, share in zip(itertools.pairwise(edges), shares, strict=True) for edge in bounds
            ]
            points = [(edges[0], 0.0), *steps, (edges[-1], 0.0)]
            lines.append(Line(number % NUM_COLORS, points, is_filled=not lines))
    return _plot(splits[0][2].name, lines, size=(300, 130), num_ticks=(3, 0), from_zero=True) if lines else None


def plot_roc(points: Sequence[tuple[float, float, float]]) -> Plot | None:
    """Plots a ROC curve; None without points."""
    if not points:
        return None
    line = Line(0, [(false_rate, true_rate) for _, false_rate, true_rate in points])
    lines = [Line(6, [(0.0, 0.0), (1.0, 1.0)]), line]
    return _plot("True positive rate", lines, "false positive rate", size=(340, 300))


def _plot_curves(title: str, curves: Iterable[Curve], restarts: Sequence[float], from_zero: bool = False) -> Plot:
    curves = list(curves)
    names = dict.fromkeys(curve.series for curve in curves)
    colors = {name: number % NUM_COLORS for number, name in enumerate(names)}
    lines = [Line(colors[curve.series], curve.points, 2.2 if len(curve.points) <= MAX_MARKS else 0) for curve in curves]
    return _plot(title, lines, "step", marks=restarts, legend=tuple(colors.items()), from_zero=from_zero)


def _plot(
    title: str,
    lines: Iterable[Line],
    label: str = "",
    size: tuple[int, int] = (440, 240),
    num_ticks: tuple[int, int] = (6, 5),
    marks: Sequence[float] = (),
    legend: tuple[tuple[str, int], ...] = (),
    from_zero: bool = False,
) -> Plot:
    """Converts values to places in a drawing of `size`."""
    lines, (width, height) = list(lines), size
    left, bottom = 56 if num_ticks[1] else _RIGHT, height - (_BOTTOM if label else 20)
    points = [point for line in lines for point in line.points]
    low_x, high_x = _find_range([*(x for x, _ in points), *marks])
    low_y, high_y = _find_range([*(y for _, y in points), *([0.0] if from_zero else [])])

    def place_x(x: float) -> float:
        return round(left + (width - _RIGHT - left) * (x - low_x) / (high_x - low_x), 1)

    def place_y(y: float) -> float:
        return round(bottom - (bottom - _TOP) * (y - low_y) / (high_y - low_y), 1)

    x_ticks = [tick for tick in _choose_ticks(low_x, high_x, num_ticks[0]) if label != "step" or tick == int(tick)]
    return Plot(
        title,
        width,
        height,
        left,
        bottom,
        label,
        tuple(replace(line, points=[(place_x(x), place_y(y)) for x, y in line.points]) for line in lines),
        tuple((place_x(tick), f"{tick:.6g}") for tick in x_ticks),
        tuple((place_y(tick), f"{tick:.6g}") for tick in _choose_ticks(low_y, high_y, num_ticks[1])),
        tuple(map(place_x, marks)),
        legend,
    )


def _find_range(values: Sequence[float]) -> tuple[float, float]:
    """Returns a range with some room around values, which need not differ."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = (high - low) / 25 or (abs(low) or 1.0) / 20
    return low - room * (low != 0), high + room


def _choose_ticks(low: float, high: float, count: int) -> list[float]:
    """Returns at most about `count` round numbers within a range."""
    if not count:
        return []
    least = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(least))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= least)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]

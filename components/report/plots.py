"""Draws the plots of a report as inline SVG, with matplotlib.

Lines and areas have colours of the page's style sheet, so that they follow light and
dark mode. Each plot has a text alternative, and the page lists its numbers too.
"""

import io
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from tfx_distribute.components.report.data import Curve, Curves, Feature, Node
from tfx_distribute.components.tuner.trials import SearchResult
from tfx_distribute.trainer_module.job.time_use import ACTIVITIES, TimeUse

NUM_COLORS = 8  # --c0 to --c7 in the style sheet
MAX_HPARAMS = 6  # that trials are plotted over
# Colours that matplotlib writes, and the ones of the style sheet that replace them.
_SERIES = tuple(f"#fe0{number:02d}0" for number in range(NUM_COLORS))
_INK, _GRID, _BAD, _TEXT = "#fd0010", "#fd0020", "#fd0030", "#fd0040"
_DARK = "#0b0e14"  # text on a strong colour, in both modes
_VARIABLES = {
    **{color: f"var(--c{number})" for number, color in enumerate(_SERIES)},
    _INK: "var(--muted)",
    _GRID: "var(--line)",
    _BAD: "var(--bad)",
    _TEXT: "var(--ink)",
}
# Newer versions of matplotlib declare the names of all settings, older ones `str`.
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names may have a $
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "grid.color": _GRID,
    "font.size": 9,
    "lines.linewidth": 1.8,
    "axes.unicode_minus": False,
}
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
_numbers = itertools.count()


@dataclass(frozen=True)
class Plot:
    """A drawn plot.

    Attributes:
      svg: The drawing, an SVG element.
      legend: Name of each series -> number of its colour in the style sheet.
    """

    title: str
    svg: str
    legend: tuple[tuple[str, int], ...] = ()


def draw_timeline(nodes: Sequence[Node]) -> Plot | None:
    """Draws when each node ran; None without nodes."""
    if not nodes:
        return None
    begin = min(node.started for node in nodes)
    with _figure(4.4, 0.5 + 0.24 * len(nodes)) as (figure, axes):
        for row, node in enumerate(nodes):
            color = (
                _SERIES[5] if node.state in ("failed", "stopped") else _SERIES[6] if node.state == "cached" else _SERIES[0]
            )
            axes.barh(row, max(node.seconds or 0.0, 1e-3), left=node.started - begin, height=0.62, color=color)
        end = max(node.started - begin + (node.seconds or 0.0) for node in nodes)
        axes.set_xlim(0, max(end, 0.1) * 1.01)
        axes.set_yticks(range(len(nodes)), [_shorten(node.name, 22) for node in nodes])
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.set_xlabel("seconds since the start")
        axes.grid(axis="x", linewidth=0.6)
        axes.spines["left"].set_visible(False)
        names = {"complete": ("ran", 0), "cached": ("from the cache", 6), "failed": ("failed", 5), "stopped": ("stopped", 5)}
        legend = tuple(dict.fromkeys(names[node.state] for node in nodes if node.state in names))
        return Plot("Timeline", _to_svg(figure, f"Timeline of {len(nodes)} nodes"), legend)


def draw_metrics(curves: Curves) -> list[Plot]:
    """Draws each metric: a line for each process and try, and marks of restarts."""
    names = list(dict.fromkeys(curve.metric for curve in curves.metrics))
    return [
        _draw_curves(name, [curve for curve in curves.metrics if curve.metric == name], curves.unit, curves.restarts)
        for name in names
    ]


def draw_throughput(curves: Curves) -> Plot | None:
    """Draws the examples per second of each process; None if they are unknown."""
    if not curves.throughput:
        return None
    return _draw_curves("examples per second", curves.throughput, curves.unit, curves.restarts, from_zero=True)


def draw_time_use(time_use: TimeUse) -> Plot | None:
    """Draws the shares of the time of each process; None without processes."""
    if not time_use.processes:
        return None
    activities = [name for name in ACTIVITIES if any(process.share(name) >= 0.001 for process in time_use.processes)]
    with _figure(4.4, 0.45 + 0.28 * len(time_use.processes)) as (figure, axes):
        for row, process in enumerate(time_use.processes):
            left = 0.0
            for name in activities:
                share = 100 * process.share(name)
                axes.barh(row, share, left=left, height=0.62, color=_SERIES[ACTIVITIES.index(name) % NUM_COLORS])
                left += share
        axes.set_xlim(0, 100)
        axes.set_yticks(range(len(time_use.processes)), [_shorten(process.task, 22) for process in time_use.processes])
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
        legend = tuple((name.replace("_", " "), ACTIVITIES.index(name) % NUM_COLORS) for name in activities)
        return Plot("Time of each process", _to_svg(figure, "Shares of each process's time"), legend)


def draw_feature(name: str, features: Sequence[tuple[int, Feature]]) -> Plot | None:
    """Draws the distribution of a feature; None if it is unknown.

    `features` has number and feature of each split; the number decides on the colour.
    """
    known = [(number, feature.histogram) for number, feature in features if feature.histogram]
    if not known or not any(sum(histogram.counts) for _, histogram in known):
        return None
    texts = list(dict.fromkeys(label for _, histogram in known for label in histogram.labels))[:5]
    with _figure(3.0, 1.3) as (figure, axes):
        for order, (number, histogram) in enumerate(known):
            shares = histogram.shares
            color = _SERIES[number % NUM_COLORS]
            if texts:
                height = 0.8 / len(known)
                rows = dict(zip(histogram.labels, shares, strict=False))
                places = [row - 0.4 + height * (order + 0.5) for row in range(len(texts))]
                axes.barh(places, [rows.get(text, 0.0) for text in texts], height=height, color=color)
            else:
                edges = histogram.edges if histogram.edges[0] < histogram.edges[-1] else _spread(histogram.edges)
                axes.stairs(shares, edges, color=color, fill=order == 0, alpha=0.75 if order == 0 else 1.0, linewidth=1.4)
        if texts:
            axes.set_yticks(range(len(texts)), [_shorten(text, 18) for text in texts])
            axes.invert_yaxis()
            axes.tick_params(axis="y", length=0)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
        else:
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.5g}"))
        return Plot(name, _to_svg(figure, f"Distribution of {name}"))


def draw_trials(search: SearchResult) -> list[Plot]:
    """Draws the objective over each hyperparameter that was searched."""
    done = [trial for trial in search.trials if trial.score is not None and math.isfinite(trial.score)]
    names = list(dict.fromkeys(name for trial in done for name in trial.hparams))[:MAX_HPARAMS]
    plots = []
    for name in names:
        known = [trial for trial in done if name in trial.hparams]
        values = [trial.hparams[name] for trial in known]
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        with _figure(3.4, 2.1) as (figure, axes):
            scores = [trial.score or 0.0 for trial in known]
            places = values if is_number else [_shorten(str(value), 12) for value in values]
            axes.scatter(places[1:], scores[1:], s=26, color=_SERIES[0], alpha=0.75, linewidths=0)
            axes.scatter(places[:1], scores[:1], s=48, color=_SERIES[2], linewidths=0)  # the best comes first
            if is_number and min(values) > 0 and max(values) / min(values) >= 20:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel(_shorten(name, 40))
            axes.grid(linewidth=0.6)
            svg = _to_svg(figure, f"{search.objective} over {name}")
            plots.append(Plot(name, svg, (("best trial", 2), ("other trials", 0))))
    return plots


def draw_confusion(classes: Sequence[str], rows: Sequence[Sequence[float]]) -> Plot | None:
    """Draws a confusion matrix; None without classes."""
    if not classes:
        return None
    size = min(5.0, 1.4 + 0.32 * len(classes))
    with _figure(size, size) as (figure, axes):
        for actual, row in enumerate(rows):
            total = sum(row) or 1.0
            for predicted, count in enumerate(row):
                color = _SERIES[0] if actual == predicted else _BAD
                alpha = 0.06 + 0.8 * count / total
                axes.barh(
                    actual,
                    0.94,
                    left=predicted - 0.47,
                    height=0.94,
                    color=color,
                    alpha=alpha,
                    linewidth=0,
                )
                if len(classes) <= 12:
                    ink = _TEXT if alpha < 0.6 else _DARK
                    axes.text(predicted, actual, f"{count:g}", ha="center", va="center", fontsize=8, color=ink)
        axes.set_xlim(-0.5, len(classes) - 0.5)
        axes.set_ylim(len(classes) - 0.5, -0.5)
        if len(classes) <= 30:
            axes.set_xticks(range(len(classes)), [_shorten(name, 10) for name in classes])
            axes.set_yticks(range(len(classes)), [_shorten(name, 10) for name in classes])
        axes.tick_params(length=0)
        axes.set_xlabel("predicted")
        axes.set_ylabel("actual")
        for spine in axes.spines.values():
            spine.set_visible(False)
        return Plot("Confusion matrix", _to_svg(figure, "Confusion matrix"))


def draw_roc(points: Sequence[tuple[float, float, float]]) -> Plot | None:
    """Draws a ROC curve; None without points."""
    if not points:
        return None
    with _figure(3.4, 3.0) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=_GRID, linewidth=1, linestyle=(0, (3, 3)))
        axes.plot([rate for _, rate, _ in points], [rate for _, _, rate in points], color=_SERIES[0])
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
        axes.grid(linewidth=0.6)
        return Plot("ROC curve", _to_svg(figure, "ROC curve"))


def _draw_curves(title: str, curves: Iterable[Curve], unit: str, restarts: Sequence[float], from_zero: bool = False) -> Plot:
    curves = list(curves)
    names = list(dict.fromkeys(curve.series for curve in curves))
    color_of = {name: number % NUM_COLORS for number, name in enumerate(names)}
    with _figure(4.4, 2.2 if from_zero else 2.5) as (figure, axes):
        for curve in curves:
            steps, values = [step for step, _ in curve.points], [value for _, value in curve.points]
            marker = "o" if len(steps) <= 30 else ""
            axes.plot(steps, values, color=_SERIES[color_of[curve.series]], marker=marker, markersize=3.2)
        for step in restarts:
            axes.axvline(step, color=_BAD, linewidth=1, linestyle=(0, (3, 3)))
        if from_zero:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(unit)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.grid(axis="y", linewidth=0.6)
        svg = _to_svg(figure, f"{title} of {', '.join(names)}")
        return Plot(title, svg, tuple(color_of.items()))


@contextmanager
def _figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yields a figure in the report's style; sizes are in units of 96 pixels."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, figure.subplots()


def _to_svg(figure: Figure, description: str) -> str:
    number = next(_numbers)
    stream = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": "report"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of characters that matplotlib's own font lacks
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # Several plots are in one page, whose ids have to be unique.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>p{number}-", svg)
    svg = re.sub(r"#f[de]0\d\d0", lambda match: _VARIABLES[match[0]], svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)  # the page has one
    svg = re.sub(r"\n\s*", "\n", svg)
    return re.sub(r"<svg [^>]*?viewBox=", f'<svg role="img" aria-label="{_escape(description)}" viewBox=', svg, count=1)


def _spread(edges: Sequence[float]) -> Sequence[Any]:
    """Returns distinct edges for a feature with one value."""
    (value, width) = (edges[0], (abs(edges[0]) or 1.0) / 20)
    return [value - width / 2 + width * number / (len(edges) - 1) for number in range(len(edges))]


def clean_text(text: str) -> str:
    """Replaces characters that HTML does not allow, or that hide other text."""
    return _INVISIBLE.sub("\ufffd", text)


def _shorten(text: str, length: int) -> str:
    text = clean_text(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _escape(text: str) -> str:
    return clean_text(text).replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")

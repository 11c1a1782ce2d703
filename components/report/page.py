"""Writes a report as one HTML page, which needs no network and no script."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from tfx_distribute import __version__
from tfx_distribute.components.report import plots
from tfx_distribute.components.report.data import Curve, Feature, Report

MAX_FEATURES = 60  # whose distributions are drawn
MAX_SLICES = 200  # those that do not meet a threshold come first
MAX_ROWS = 500  # of trials and of numbers of curves
_TEMPLATES = Path(__file__).parent / "templates"
_STATISTICS = ("mean", "std", "min", "median", "max", "zeros", "nan", "unique")


@dataclass(frozen=True)
class _FeatureCard:
    """A feature in all splits, as the page shows it."""

    name: str
    kind: str
    plot: plots.Plot | None
    splits: tuple[tuple[str, Feature], ...]
    statistics: tuple[str, ...]


def render(report: Report) -> str:
    """Returns the page, in which all texts are escaped.

    Example:
      >>> render(Report("digits")).startswith("<!doctype html>")
      True
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean,
    )
    environment.filters.update(
        number=format_number, duration=format_duration, time=format_time, change=format_change, svg=Markup, percent=_percent
    )
    evaluation, curves = report.evaluation, report.curves
    text: str = environment.get_template("report.html").render(
        report=report,
        version=__version__,
        style=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704 (our own file)
        facts=_list_facts(report),
        training=_list_training(report.training),
        timeline=plots.draw_timeline(report.nodes),
        features=_make_cards(report),
        num_features=len({feature.name for split in report.splits for feature in split.features}),
        metric_plots=[(plot, _list_ends(plot.title, curves.metrics)) for plot in plots.draw_metrics(curves)],
        throughput=plots.draw_throughput(curves),
        throughput_ends=_list_ends("examples per second", curves.throughput),
        time_plot=plots.draw_time_use(report.time_use) if report.time_use else None,
        confusion=plots.draw_confusion(*evaluation.confusion) if evaluation else None,
        roc=plots.draw_roc(evaluation.roc) if evaluation else None,
        trial_plots=plots.draw_trials(report.search) if report.search else [],
        hparam_names=list(dict.fromkeys(name for trial in report.search.trials for name in trial.hparams))
        if report.search
        else [],
        max_slices=MAX_SLICES,
        num_colors=plots.NUM_COLORS,
        max_rows=MAX_ROWS,
    )
    return text.lstrip()


def format_number(value: Any) -> str:
    """Formats a number with about five digits; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:.5g}"


def format_change(value: float) -> str:
    """Formats a difference, with its sign."""
    return f"{value:+.4g}"


def format_duration(seconds: float | None) -> str:
    """Formats seconds, such as `4.2 s`, `3 min 20 s` or `2 h 5 min`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_time(seconds: float | None) -> str:
    """Formats a Unix time in this machine's time zone; `-` for None."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _percent(share: float) -> str:
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _clean(value: Any) -> Any:
    return plots.clean_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _list_facts(report: Report) -> list[tuple[str, str, str]]:
    """Returns the page's headline numbers: a name, a value, and `good`, `bad` or ``."""
    facts: list[tuple[str, str, str]] = []
    if report.seconds is not None:
        facts.append(("duration", format_duration(report.seconds), ""))
    cached = sum(node.state == "cached" for node in report.nodes)
    if report.nodes:
        facts.append(("nodes", f"{len(report.nodes)}" + (f", {cached} cached" if cached else ""), ""))
    training = report.training
    if "strategy" in training:
        replicas = training.get("num_replicas")
        facts.append(("strategy", str(training["strategy"]), ""))
        if (replicas or 1) > 1:
            facts.append(("replicas", format_number(replicas), ""))
    if training.get("train_steps"):
        facts.append(("steps", format_number(training["train_steps"]), ""))
    latest = max((curve.attempt for curve in report.curves.throughput), default=0)
    rates = [_read_rate(curve, report.curves.restarts) for curve in report.curves.throughput if curve.attempt == latest]
    if rates and None not in rates:
        facts.append(("examples/s", format_number(round(sum(rate for rate in rates if rate))), ""))
    if report.anomalies is not None:
        errors = sum(anomaly.severity == "error" for anomaly in report.anomalies)
        facts.append(("anomalies", str(len(report.anomalies)), "bad" if errors else "" if report.anomalies else "good"))
    if report.evaluation and report.evaluation.blessed is not None:
        blessed = report.evaluation.blessed
        facts.append(("thresholds", "met" if blessed else "not met", "good" if blessed else "bad"))
    return facts


def _read_rate(curve: Curve, restarts: Sequence[float]) -> float | None:
    """Returns the latest throughput; None if only that of a try's first step is known.

    Most of the first step's time went to tracing.
    """
    if not curve.points:
        return None
    step, rate = curve.points[-1]
    return None if any(0 <= step - start <= 1 for start in (0, *restarts)) else rate


def _list_training(training: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties of a training that other parts of the page do not show."""
    return {
        name: value
        for name, value in sorted(training.items())
        if value not in ("", None) and not name.startswith(("time_", "slowest_process"))
    }


def _make_cards(report: Report) -> list[_FeatureCard]:
    names = list(dict.fromkeys(feature.name for split in report.splits for feature in split.features))[:MAX_FEATURES]
    cards = []
    for name in names:
        splits = [
            (number, split.name, feature)
            for number, split in enumerate(report.splits)
            for feature in split.features
            if feature.name == name
        ]
        shown = tuple(key for key in _STATISTICS if any(key in feature.numbers for _, _, feature in splits))
        plot = plots.draw_feature(name, [(number, feature) for number, _, feature in splits])
        cards.append(
            _FeatureCard(name, splits[0][2].kind, plot, tuple((split, feature) for _, split, feature in splits), shown)
        )
    return cards


def _list_ends(metric: str, curves: Sequence[Curve]) -> list[tuple[str, int, float, float, float, float]]:
    """Returns series, try, first, last, least and largest value."""
    ends = []
    for curve in curves:
        if curve.metric == metric and curve.points:
            values = [value for _, value in curve.points]
            ends.append((curve.series, curve.attempt + 1, values[0], values[-1], min(values), max(values)))
    return ends

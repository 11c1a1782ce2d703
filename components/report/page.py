"""Writes a report as one HTML page, which needs no network and no script."""

import math
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from tfx_distribute import __version__
from tfx_distribute.components.report import plots
from tfx_distribute.components.report.data import MAX_CLASSES, Feature, Report, format_duration
from tfx_distribute.trainer_module.job.time_use import ACTIVITIES

MAX_FEATURES = 60  # whose distributions are drawn
MAX_SLICES = 200  # those that do not meet a threshold come first
MAX_ROWS = 500  # of trials
MAX_TEXTS = 5  # of a feature, whose shares are drawn
_TEMPLATES = Path(__file__).parent / "templates"
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


def render(report: Report) -> str:
    """Returns the page, in which all texts are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean,
    )
    environment.filters.update(number=format_number, duration=format_duration, time=format_time, percent=_percent)
    template = environment.get_template("report.html")
    feature_names = list(dict.fromkeys(feature.name for split in report.splits for feature in split.features))
    return template.render(
        report=report,
        plots=plots,
        version=__version__,
        style=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704 (our own file)
        facts=_list_facts(report),
        training={
            name: value
            for name, value in sorted(report.training.items())  # other parts of the page show the rest
            if value not in ("", None) and not name.startswith(("time_", "slowest_process"))
        },
        begin=min((node.started for node in report.nodes), default=0.0),
        end=max((node.started + (node.seconds or 0.0) for node in report.nodes), default=0.0),
        features=[_list_splits(report, name) for name in feature_names[:MAX_FEATURES]],
        list_bars=_list_bars,
        split_colors=[(split.name, number % plots.NUM_COLORS) for number, split in enumerate(report.splits)],
        num_features=len(feature_names),
        activities=_list_activities(report),
        max_slices=MAX_SLICES,
        max_rows=MAX_ROWS,
        max_classes=MAX_CLASSES,
    ).lstrip()


def format_number(value: Any) -> str:
    """Formats a number with about five digits; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool | str) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:.5g}"


def format_time(seconds: float | None) -> str:
    """Formats a Unix time in this machine's time zone; `-` for None."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _percent(share: float) -> str:
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _clean(value: Any) -> Any:
    """Replaces characters that HTML does not allow, or that hide other text."""
    return _INVISIBLE.sub("\ufffd", value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _list_facts(report: Report) -> list[tuple[str, str, str]]:
    """Returns the page's headline numbers: a name, a value, and `good`, `bad` or ``."""
    training = report.training
    cached = sum(node.state == "cached" for node in report.nodes)
    facts = [("duration", format_duration(report.seconds), "")] if report.seconds is not None else []
    facts += [("nodes", f"{len(report.nodes)}, {cached} cached", "")] if report.nodes else []
    titles = {"strategy": "strategy", "num_replicas": "replicas", "train_steps": "steps"}
    facts += [(title, format_number(training[name]), "") for name, title in titles.items() if training.get(name)]
    if report.anomalies is not None:
        errors = sum(anomaly.severity == "error" for anomaly in report.anomalies)
        facts.append(("anomalies", str(len(report.anomalies)), "bad" if errors else "" if report.anomalies else "good"))
    if report.evaluation and report.evaluation.blessed is not None:
        blessed = report.evaluation.blessed
        facts.append(("thresholds", "met" if blessed else "not met", "good" if blessed else "bad"))
    return facts


def _list_activities(report: Report) -> list[tuple[str, int]]:
    """Returns the activities that take any process some time, with their colours."""
    processes = report.time_use.processes if report.time_use else ()
    shares = [(name, max((process.share(name) for process in processes), default=0.0)) for name in ACTIVITIES]
    return [(name, number % plots.NUM_COLORS) for number, (name, share) in enumerate(shares) if share >= 0.001]


def _list_splits(report: Report, name: str) -> list[tuple[int, str, Feature]]:
    """Returns number and name of each split that has a feature, and the feature."""
    splits = enumerate(report.splits)
    return [(number, split.name, each) for number, split in splits for each in split.features if each.name == name]


def _list_bars(splits: Iterable[tuple[int, str, Feature]]) -> dict[str, list[tuple[int, float]]]:
    """Returns the most frequent texts, each with its share in the splits by number."""
    shares = {
        number: dict(zip(feature.histogram.labels, feature.histogram.shares, strict=False))
        for number, _, feature in splits
        if feature.histogram
    }
    texts = list(dict.fromkeys(text for of_split in shares.values() for text in of_split))[:MAX_TEXTS]
    return {text: [(number, of_split.get(text, 0.0)) for number, of_split in shares.items()] for text in texts}

"""Defines what a report shows, as plain values: no file is read here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfx_distribute.components.tuner.trials import SearchResult
from tfx_distribute.trainer_module.job.time_use import TimeUse

# Classes of a confusion matrix. Vertex AI keeps at most 200 KB of metadata for an
# artifact: 100 classes, and a curve of 100 points, with 20 digits for each number, fit.
MAX_CLASSES = 100
MAX_SLICES = 3  # that a verdict names; the others are counted
# Properties of a blessing: why the latest blessed model was not compared with, and each
# metric's thresholds with the verdict on them, as JSON.
UNUSABLE_BASELINE, VERDICTS = "unusable_baseline", "verdicts"


@dataclass(frozen=True)
class Node:
    """A node of the pipeline in this run.

    Attributes:
      state: `complete`, `cached`, `failed`, `stopped`, `canceled` or `running`.
      started: Unix time of its start, in seconds.
      seconds: How long it took; None while it runs.
      from_run: The run whose outputs a cached node took; empty if unknown.
      saved_seconds: How long the node took in that run; None if unknown.
    """

    name: str
    state: str
    started: float
    seconds: float | None = None
    from_run: str = ""
    saved_seconds: float | None = None


@dataclass(frozen=True)
class Histogram:
    """A distribution of numbers, or of the most frequent texts.

    Attributes:
      counts: Number of examples in each bucket.
      edges: Bounds of the buckets, one more than `counts`; empty for texts.
      labels: The texts; empty for numbers.
      total: Number of values, with those that `counts` leaves out; 0 for the sum of
        `counts`.
    """

    counts: tuple[float, ...]
    edges: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    total: float = 0

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each count."""
        total = self.total or sum(self.counts) or 1.0
        return tuple(count / total for count in self.counts)


@dataclass(frozen=True)
class Feature:
    """A feature's values in one split.

    Attributes:
      kind: `int`, `float`, `text`, `bytes` or `struct`.
      present: Examples that have a value.
      missing: Examples without one; None if some are, and the statistics do not say how
        many.
      numbers: Name of a statistic -> its value: mean, std, min, median, max, zeros, and
        nan if there are any, for numbers, and the number of unique values for texts.
      histogram: How the values are distributed; None if unknown.
    """

    name: str
    kind: str
    present: float
    missing: float | None = 0
    numbers: Mapping[str, float] = field(default_factory=dict)
    histogram: Histogram | None = None


@dataclass(frozen=True)
class Split:
    """Statistics of one split of the data."""

    name: str
    examples: float
    features: tuple[Feature, ...] = ()


@dataclass(frozen=True)
class Anomaly:
    """A difference between the data and their schema.

    Attributes:
      feature: The feature; empty if it concerns the whole split.
      severity: `error` or `warning`.
    """

    split: str
    feature: str
    severity: str
    summary: str
    description: str = ""


@dataclass(frozen=True)
class Curve:
    """Values of one metric of one process and try.

    Attributes:
      series: What is measured: `train`, `validation`, or a process such as `worker 0`.
      points: Pairs of a step and a value.
    """

    metric: str
    series: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Curves:
    """The course of a training.

    Attributes:
      throughput: Curves of examples per second of each process.
      restarts: Steps at which a later try continued.
    """

    metrics: tuple[Curve, ...] = ()
    throughput: tuple[Curve, ...] = ()
    restarts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A metric on one slice.

    Attributes:
      value: The value of the new model; NaN if it is missing.
      baseline: The value of the model that it is compared with; None without one.
      failed: True if a threshold is not met here.
      unmet_change: The difference from the baseline, if a threshold on it is not met.
    """

    value: float
    baseline: float | None = None
    failed: bool = False
    unmet_change: float | None = None


@dataclass(frozen=True)
class Slice:
    """The metrics of a slice, such as `hour=3`; its name is empty for all examples."""

    name: str
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Evaluation:
    """Metrics by slice, against thresholds and the baseline.

    Attributes:
      slices: All examples first, then the slices.
      thresholds: Name of a metric -> its threshold, as text.
      blessed: True if all thresholds are met; None without thresholds.
      unusable_baseline: Why the baseline is not compared with; empty if it is.
      confusion: Names of classes, and rows of counts: one for each true class; empty if
        the evaluation has no plot with them.
      roc: Threshold, false positive rate and true positive rate; empty if the
        evaluation has no plot with them.
    """

    slices: tuple[Slice, ...]
    thresholds: Mapping[str, str] = field(default_factory=dict)
    blessed: bool | None = None
    unusable_baseline: str = ""
    confusion: tuple[tuple[str, ...], tuple[tuple[float, ...], ...]] = ((), ())
    roc: tuple[tuple[float, float, float], ...] = ()

    @property
    def overall(self) -> Mapping[str, Cell]:
        """The metrics over all examples."""
        return next((slice_.cells for slice_ in self.slices if not slice_.name), {})

    @property
    def values(self) -> dict[str, float]:
        """The values over all examples."""
        return {name: cell.value for name, cell in self.overall.items()}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all metrics."""
        return tuple(dict.fromkeys(name for slice_ in self.slices for name in slice_.cells))

    def describe_verdicts(self) -> dict[str, str]:
        """Says for each metric with a threshold if it is met, and where it is not."""
        judged = self.metrics if self.blessed is not None else ()
        # A threshold on change is dropped for a first model.
        return {name: self._describe_verdict(name) for name in judged if name in self.thresholds or self.list_failed(name)}

    def _describe_verdict(self, metric: str) -> str:
        failed_on, overall = self.list_failed(metric), self.overall.get(metric, Cell(math.nan))
        if not failed_on:
            return "met"
        baseline, slices = "", sorted(filter(None, failed_on))
        if overall.unmet_change is not None:  # not from the last run, whose value a message has too
            before = overall.value - overall.unmet_change
            baseline = f": {overall.unmet_change:+.6g} from the blessed model's {before:.6g}"
        if not slices:
            return f"not met{baseline}"
        shown = ", ".join(slices[:MAX_SLICES]) + (", ..." if len(slices) > MAX_SLICES else "")
        where = f"{len(slices)} slice{'s' if len(slices) > 1 else ''} ({shown})"
        return f"not met{baseline}, also on {where}" if "" in failed_on else f"not met on {where}"

    def describe_thresholds(self) -> dict[str, str]:
        """Returns the thresholds, and if they are met, such as `>= 0.95 not met`."""
        found = self.describe_verdicts()
        return {name: f"{self.thresholds.get(name, '')} {verdict}".lstrip() for name, verdict in found.items()}

    def list_failed(self, metric: str) -> tuple[str, ...]:
        """Returns the slices on which a threshold on a metric is not met."""
        return tuple(slice_.name for slice_ in self.slices if metric in slice_.cells and slice_.cells[metric].failed)


def training_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how a model was trained, from the properties of its artifact."""
    internal = ("tfx_version", "is_external", "name", "state", "pipeline_name", "producer_component")
    return {name: value for name, value in properties.items() if name not in internal}


def format_duration(seconds: float | None) -> str:
    """Formats seconds, such as `4.2 s`, `3 min 20 s` or `2 h 5 min`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def describe_unusable_baseline(reason: str) -> str:
    """Says why the latest blessed model was not compared with; empty if it was."""
    return f"not compared with the latest blessed model: {reason}" if reason else ""


@dataclass(frozen=True)
class Artifact:
    """An artifact that a node of the run wrote, or took from the cache.

    Attributes:
      key: Name of the node's output.
      id: Its id in ML Metadata; 0 if it has none.
      is_missing: True if its files are not there.
      properties: Its properties, custom ones too.
      is_resolved: True if a resolver found it among those of earlier runs.
    """

    node: str
    key: str
    type: str
    id: int
    uri: str
    used_by: tuple[str, ...] = ()
    is_missing: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)
    is_resolved: bool = False


@dataclass(frozen=True)
class Report:
    """Everything that a report shows. Parts that a run does not have are empty.

    Attributes:
      run: Id of the run; empty for a report that a step made.
      state: `complete`, `failed`, `stopped`, `canceled`, `interrupted` or `running`;
        empty if unknown.
      started: Unix time of the start, in seconds; None if unknown.
      seconds: Duration; None if unknown.
      nodes: In the order in which they started.
      data: `spans` -> the spans that were read; `left out` -> how many examples were
        left out because a value is missing. Either may be absent.
      anomalies: What ExampleValidator found; None if it did not run.
      training: How the model was trained, such as `strategy` and `num_replicas`.
      time_use: How the processes spent the time; None if unknown.
      parameters: Pipeline parameters with other values than their defaults.
      defaults: Pipeline parameters with their default values.
      pushed: Folder of the pushed model; empty if none was pushed.
      commands: A purpose, such as `curves` -> the command or path.
      missing: What the report could not show, and why.
    """

    pipeline: str
    run: str = ""
    state: str = ""
    started: float | None = None
    seconds: float | None = None
    nodes: tuple[Node, ...] = ()
    splits: tuple[Split, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    anomalies: tuple[Anomaly, ...] | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=Curves)
    time_use: TimeUse | None = None
    evaluation: Evaluation | None = None
    search: SearchResult | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    hparams: Mapping[str, Any] = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    pushed: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

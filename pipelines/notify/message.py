"""Composes the notification about a run.

Imports neither TFX nor apprise: it computes a text from values.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfx_distribute.components.report import verdicts

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.local.results import RunResult

MAX_REASON_LINES = 5
MAX_LINE = 300  # characters
_OUTCOMES = {0: "succeeded", 1: "failed", 2: "failed", 3: "not_blessed", 4: "stopped"}  # by exit code
_GOOD = ("succeeded", "recovered")


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
      code: Exit code of the command `run`.
      reason: Why it did not succeed, or why its data were rejected; empty otherwise.
      result: Its result; None if it did not come to one.
      is_news: False if there is nothing to tell: another run is using the folder, and
        tells its own end.
      unread: Spans of the data that no run has read, as after a missed schedule.
    """

    code: int
    reason: str = ""
    result: "RunResult | None" = None
    is_news: bool = True
    unread: str = ""


@dataclass(frozen=True)
class MetricLine:
    """A metric in a message.

    Attributes:
      name: Its name in the pipeline file.
      value: Its value over all examples.
      threshold: Its threshold and if it is met, such as `>= 0.95  not met`; empty
        without one.
      before: Its value in the last run that has one; None if no run has.
    """

    name: str
    value: float
    threshold: str = ""
    before: float | None = None


@dataclass(frozen=True)
class Facts:
    """What a message says about a run. Empty values are left out.

    Attributes:
      outcome: One of the outcomes of `notify.when`.
      host: Name of the machine.
      run: Id of the run; empty if it was refused before it had one.
      data: Facts about its data, such as their spans.
      unusable_baseline: Why its model was not compared with the latest blessed one.
      model: Folder of its model, which is where it was pushed to if it was.
      report: Command that writes its report.
    """

    pipeline: str
    outcome: str
    host: str
    run: str = ""
    reason: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[MetricLine, ...] = ()
    unusable_baseline: str = ""
    model: str = ""
    report: str = ""
    log: str = ""


@dataclass(frozen=True)
class Message:
    """A message in plain text, its title in one line.

    `is_good` is True if the run succeeded; services may show it in another color.
    """

    title: str
    body: str
    is_good: bool


def find_outcome(code: int, last_outcome: str = "succeeded") -> str:
    """Returns the outcome of a run; empty for one that was interrupted.

    ```python
    find_outcome(0, last_outcome="failed")  # "recovered"
    ```

    `code` is the exit code of the command `run`, and `last_outcome` the outcome of the
    run before it, or the state of one that was ended.
    """
    outcome = _OUTCOMES.get(code, "")
    return "recovered" if outcome == "succeeded" and last_outcome not in _GOOD else outcome


def choose_outcome(outcome: str, when: Collection[str]) -> str:
    """Returns the outcome to send a notification for; empty if none is wanted.

    A run that has recovered has succeeded, too.
    """
    if outcome == "recovered" and outcome not in when:
        outcome = "succeeded"
    return outcome if outcome in when else ""


def compose(facts: Facts) -> Message:
    """Returns the message about a run.

    ```python
    compose(Facts("taxi", "not_blessed", "train-1")).title  # "taxi: not blessed"
    ```
    """
    rows = {
        "run": facts.run,
        **facts.data,
        "reason": _shorten(facts.reason),
        **{metric.name: _format_metric(metric) for metric in facts.metrics},
        "baseline": _shorten(verdicts.describe_unusable_baseline(facts.unusable_baseline)),
        "model": facts.model,
        "report": facts.report,
        "log": facts.log,
        "host": facts.host,
    }
    body = "\n".join(f"{name}: {text}" for name, text in rows.items() if text)
    return Message(f"{facts.pipeline}: {facts.outcome.replace('_', ' ')}", body, facts.outcome in _GOOD)


def make_test(pipeline: str, host: str) -> Message:
    """Returns a message that only tests whether messages arrive."""
    text = f"Messages about runs of {pipeline} arrive here.\nhost: {host}"
    return Message(f"{pipeline}: test", text, is_good=True)


def _shorten(reason: str) -> str:
    lines = [line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..." for line in reason.splitlines() if line.strip()]
    return "\n".join(lines[:MAX_REASON_LINES] + ["..."] * (len(lines) > MAX_REASON_LINES))


def _format_metric(metric: MetricLine) -> str:
    notes = [" ".join(metric.threshold.split())] if metric.threshold else []
    notes += [f"last run {metric.before:.6g}"] if metric.before is not None else []
    return f"{metric.value:.6g}" + (f" ({'; '.join(notes)})" if notes else "")

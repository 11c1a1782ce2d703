"""Composes the notification about a run.

Imports neither TFX nor apprise: it computes a text from values.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

MAX_REASON_LINES = 5
MAX_LINE = 300  # characters
_OUTCOMES = {0: "succeeded", 1: "failed", 2: "failed", 3: "not_blessed", 4: "stopped"}  # by exit code
_LONG = ("reason", "baseline")
_GOOD = ("succeeded", "recovered")


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
      code: Exit code of the command `run`.
      reason: Why it did not succeed, or why its data were rejected; empty otherwise.
      is_news: False if there is nothing to tell: another run is using the folder, and
        tells its own end.
    """

    code: int
    reason: str = ""
    is_news: bool = True


@dataclass(frozen=True)
class Message:
    """A message in plain text, its title in one line.

    `is_good` is True if the run succeeded; services may show it in another color.
    """

    title: str
    body: str
    is_good: bool


def find_outcome(code: int, last_outcome: str = "succeeded") -> str:
    """Returns the outcome of a run by its exit code; empty for an interrupted one.

    `last_outcome` is that of the run before it, or the state of one that was ended.
    """
    outcome = _OUTCOMES.get(code, "")
    return "recovered" if outcome == "succeeded" and last_outcome not in _GOOD else outcome


def choose_outcome(outcome: str, when: Collection[str]) -> str:
    """Returns the outcome to send; empty for none. `recovered` is `succeeded`, too."""
    if outcome == "recovered" and outcome not in when:
        outcome = "succeeded"
    return outcome if outcome in when else ""


def compose(pipeline: str, outcome: str, facts: Mapping[str, str]) -> Message:
    """Returns the message about a run; facts that are empty are left out."""
    shown = {name: _shorten(text) if name in _LONG else text for name, text in facts.items() if text}
    body = "\n".join(f"{name}: {text}" for name, text in shown.items())
    return Message(f"{pipeline}: {outcome.replace('_', ' ')}", body, outcome in _GOOD)


def describe_metric(value: str, verdict: str) -> str:
    """Returns the fact about a metric; `verdict` judges its thresholds."""
    return f"{value} ({verdict})" if verdict else value


def _shorten(reason: str) -> str:
    lines = [line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..." for line in reason.splitlines() if line.strip()]
    return "\n".join(lines[:MAX_REASON_LINES] + ["..."] * (len(lines) > MAX_REASON_LINES))

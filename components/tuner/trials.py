"""Keeps the table of a search's trials, in the Tuner's output `tuner_results`.

Imports neither TFX nor KerasTuner.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

COMPLETED, FAILED = "COMPLETED", "FAILED"

TABLE_FILE = "trials.jsonl"  # all trials, a line for each
RESULTS_FILE = "tuner_results.json"  # the completed ones, as TFX's Tuner writes them


@dataclass(frozen=True)
class Trial:
    """A trial of a search.

    Attributes:
      trial: Its number in the search.
      status: `COMPLETED` or `FAILED`, as in KerasTuner; `FAILED` until it has ended.
      score: Its objective at the end; None if it failed, or has not ended.
      step: Training steps that it took in total; 0 if it failed.
      epochs: Epochs that it was given; 0 if all trials have the same length.
      continues: Number of the trial that it continued; empty if it continued none.
      seconds: Wall time, without the start of its processes; 0 if it failed.
    """

    trial: str
    status: str
    hparams: Mapping[str, Any]
    score: float | None = None
    step: int = 0
    epochs: int = 0
    continues: str = ""
    seconds: float = 0.0
    message: str = ""


def ranked(trials: Iterable[Trial], goal: str) -> list[Trial]:
    """Returns trials, the best first for `min` or `max`; failed ones come last."""
    sign = 1 if goal == "min" else -1
    return sorted(trials, key=lambda trial: (trial.score is None, sign * (trial.score or 0.0)))


def to_lines(trials: Iterable[Trial]) -> str:
    """Writes trials as JSON documents, one a line."""
    return "".join(f"{json.dumps(asdict(trial))}\n" for trial in trials)


def from_lines(text: str) -> list[Trial]:
    """Reads trials from JSON documents, one a line."""
    return [Trial(**json.loads(line)) for line in text.splitlines()]


def to_records(trials: Iterable[Trial]) -> str:
    """Writes completed trials as TFX's Tuner does: a JSON list of flat records."""
    completed = [trial for trial in trials if trial.status == COMPLETED]
    return json.dumps([{"trial_id": trial.trial, "score": trial.score, **trial.hparams} for trial in completed])


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
      goal: `min` or `max`.
      trials: All trials, from the best to the worst.
    """

    objective: str
    goal: str
    trials: Sequence[Trial] = ()


def format_table(result: SearchResult) -> str:
    """Formats the trials of a search as a table."""
    names = list(dict.fromkeys(name for trial in result.trials for name in trial.hparams))
    rows = [["trial", result.objective, "steps", *names]]
    for trial in result.trials:
        score = "failed" if trial.score is None else f"{trial.score:.6g}"
        name = f"{trial.trial} (from {trial.continues})" if trial.continues else trial.trial
        rows.append([name, score, str(trial.step or "-"), *(_format(trial.hparams.get(name)) for name in names)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def describe(hparams: Mapping[str, Any]) -> str:
    """Describes values on one line, such as `learning_rate=0.01, units=32`."""
    return ", ".join(f"{name}={_format(value)}" for name, value in hparams.items())


def shorten(message: str) -> str:
    """Returns the first and the last line of a message, which names the error."""
    first, *others = message.splitlines() or [""]
    return f"{first}: {others[-1].strip()}" if others else first


def _format(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)

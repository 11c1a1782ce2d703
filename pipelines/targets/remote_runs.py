"""Defines runs and schedules on a platform, as `runs` and `schedules` show them.

A `state` is the platform's word, in lower case. Times are Unix times, and durations are
in seconds; None if unknown, or not yet there. An empty `error` stands for none.
"""

import abc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from tfx_distribute.components import timeouts

SUCCESS_STATES = ("succeeded", "skipped")
FINAL_STATES = (*SUCCESS_STATES, "failed", "error", "canceled", "cancelled")

ScheduleChange = Literal["pause", "resume", "delete"]


@dataclass(frozen=True)
class RemoteTask:
    """A task of a run: a step of the pipeline."""

    name: str
    state: str
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True)
class RemoteRun:
    """A run on a platform; in a list it has neither `parameters` nor `tasks`."""

    id: str
    name: str
    state: str
    started: float | None = None
    seconds: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[RemoteTask, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class RemoteSchedule:
    """A schedule on a platform, which runs a pipeline repeatedly."""

    id: str
    name: str
    state: str
    cron: str
    next_run: float | None = None


class RemoteRuns(abc.ABC):
    """The runs and schedules on a platform.

    Methods raise a ConfigurationError if the platform refuses, or does not answer.
    """

    @abc.abstractmethod
    def list_runs(self, limit: int) -> list[RemoteRun]:
        """Returns at most `limit` runs, the latest first."""

    @abc.abstractmethod
    def get(self, run_id: str, patience_seconds: float = 0.0) -> RemoteRun:
        """Returns a run with its parameters and tasks.

        Retries for `patience_seconds` while there is no answer.
        """

    def follow(self, run_id: str, report: Callable[[str], None]) -> bool:
        """Follows a run to its end, and returns True if it has succeeded.

        `report` is called with a line for each new state of a task, and for the end.
        """
        seen: set[tuple[str, str]] = set()
        while True:
            run = self.get(run_id, timeouts.ANSWER_SECONDS)
            for task in run.tasks:
                if task.state and (task.name, task.state) not in seen:
                    seen.add((task.name, task.state))
                    report(f"{task.name:28} {task.state}{f': {task.error}' if task.error else ''}")
            if run.state in FINAL_STATES:
                if run.error:
                    report(run.error)
                report(f"ended    {run.state}")
                return run.state in SUCCESS_STATES
            time.sleep(timeouts.RUN_POLL_SECONDS)

    @abc.abstractmethod
    def cancel(self, run_id: str) -> None:
        """Asks the platform to end a run, which must not have ended."""

    @abc.abstractmethod
    def list_schedules(self, limit: int) -> list[RemoteSchedule]:
        """Returns at most `limit` schedules, the latest first."""

    @abc.abstractmethod
    def change_schedule(self, schedule_id: str, change: ScheduleChange) -> None:
        """Pauses, resumes or deletes a schedule; runs that it has started go on.

        Raises a ConfigurationError if it would end a run that is in progress.
        """


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    """Returns the seconds from one time to another; None if one is unknown.

    Kubeflow Pipelines has 1970 for a time that has not come.
    """
    if start is None or end is None or end.timestamp() <= start.timestamp():
        return None
    return end.timestamp() - start.timestamp()

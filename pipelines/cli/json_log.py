"""Writes a run as JSON lines, for log collectors: `run --log-format json`.

The keys `severity`, `message` and `time` are those of Google Cloud's structured logs;
`event` says what happened, and each event has keys of its own.
"""

import time
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from tfx_distribute.pipelines.cli.progress_line import TimeLeft, format_training_line
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.reporting.process_log import as_json
from tfx_distribute.trainer_module.reporting.progress import Progress, log_interval

_SEVERITIES = {"red": "ERROR", "yellow": "WARNING"}


class JsonConsole(Console):
    """A console that prints each text as one line of JSON."""

    def print(self, *objects: Any, style: Any = None, **_: Any) -> None:
        """Prints an event `message`; its severity is that of its style."""
        texts = [item.plain if isinstance(item, Text) else str(item) for item in objects]
        self.event("message", " ".join(texts).strip(), _SEVERITIES.get(str(style), "INFO"))

    def event(self, event: str, message: str, severity: str = "INFO", **details: Any) -> None:
        """Prints an event.

        Args:
          event: What has happened.
          message: Text for people.
          severity: `INFO`, `WARNING` or `ERROR`.
          **details: Keys of the event.
        """
        self.file.write(as_json({"event": event, **details}, message, severity) + "\n")
        self.file.flush()


class JsonRunView:
    """Prints the events of a run, as `RunView` shows them.

    Reports of training processes and of Beam pipelines become rarer the longer a node
    takes; those with a message are all printed.
    """

    def __init__(self, console: JsonConsole):
        self._console = console
        self._node, self._started = "", 0.0
        self._printed_at: dict[str, float] = {}  # by process
        self._time_left = TimeLeft()

    def __enter__(self) -> "JsonRunView":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def on_node(self, node: str, seconds: float | None = None, cached: bool = False) -> None:
        """Prints that a node has started or, with its seconds, that it has ended."""
        if seconds is None:
            self._node, self._started = node, time.monotonic()
            self._printed_at.clear()
            self._console.event("node_started", f"{node} has started", node=node)
            return
        message = f"{node}: cached" if cached else f"{node}: {seconds:.1f} s"
        self._console.event("node_ended", message, node=node, seconds=round(seconds, 3), cached=cached)

    def node_failed(self, node: str, reason: str = "failed") -> None:
        """Prints that a node has failed."""
        self._console.event(f"node_{reason}", f"{node} has {reason}", "ERROR", node=node)

    def training_progressed(self, task: ClusterTask, progress: Progress) -> None:
        """Prints a report of a training process, if one is due."""
        left = self._time_left.add(time.monotonic(), progress) if task == CHIEF_TASK else None
        if not self._is_due(task.file_name) and not progress.message and progress.phase in ("train", "run_fn"):
            return
        message = progress.message or f"{task}: {format_training_line({task: progress}, left)}"
        details = {name: value for name, value in asdict(progress).items() if name != "message"}
        details["seconds_left"] = left and round(left, 1)
        self._console.event("training", message, node=self._node, task=task.file_name, **details)

    def beam_progressed(self, done: int, total: int) -> None:
        """Prints how many stages of the node's Beam pipeline are done, if it is due."""
        if self._is_due("beam"):
            message = f"{self._node}: stage {done} of {total}"
            self._console.event("beam", message, node=self._node, stages_done=done, stages=total)

    def _is_due(self, name: str) -> bool:
        now = time.monotonic()
        if now - self._printed_at.get(name, self._started) < log_interval(now - self._started):
            return False
        self._printed_at[name] = now
        return True

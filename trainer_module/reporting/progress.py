"""Reports a training process's progress, one JSON object per line.

Each process writes to a separate file, which a launcher on the same machine reads as it
grows. On other machines the lines go to standard output, and so to the process's log.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

# Environment variable: path of the file; if unset, reports go to standard output.
PROGRESS_FILE = "TFX_DISTRIBUTE_PROGRESS"
# Factor of the heartbeat timeout on one machine: while the machine is paused, all of
# its processes miss heartbeats together.
LOCAL_HEARTBEATS = 10
# Least and greatest number of seconds between two reports of the phase `train`, and
# their share of the time since the process started. A day of training has about 5,000
# of them, each in the history too, which an address gets as a whole again and again.
REPORT_SECONDS, MAX_REPORT_SECONDS, REPORT_SHARE = 0.5, 30.0, 0.002


@dataclass(frozen=True)
class Progress:
    """One report of a training process.

    Attributes:
      phase: `start`, `train`, `export` or `done`; `run_fn` for such a function; `serve`
        for a process that a coordinator uses. The history has three more: `epoch` at
        the end of an epoch, with the metrics of `on_epoch_end`, those of the evaluation
        included; `failed` if the try ended with an error, which `message` has;
        `stopped` if it was asked to end.
      step: Training steps done.
      train_steps: Total number of training steps; 0 if unknown.
      examples_per_second: Recent training speed of this process's replicas.
      num_replicas: Replicas that train in step, over all processes.
      global_batch_size: Examples per training step, over all processes.
      metrics: Running values of the loss and the metrics.
      message: A message for the user, sent once.
      activity: The work that is stuck, and where; empty while there is progress. In the
        phase `run_fn` on one machine, the last line in the process's log.
      stalled_secs: Seconds for which it has been stuck.
      epoch: Number of the epoch, from 1; 0 before the first.
      epochs: Number of epochs in total; 0 if unknown.
      learning_rate: The optimizer's learning rate; None if unknown.
      seconds: Seconds by activity since the try began to train, each one of
        `time_use.ACTIVITIES`.
      counters: Numbers over the same time, each one of `time_use.COUNTERS`.
      time: Unix time of the report, in seconds; `Reporter` sets it and the next two.
      task: The process: `chief-0`, `worker-1`, `ps-0`.
      started: Unix time at which this try of the process started.
    """

    # The loss may be infinite or NaN.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    phase: str
    step: int = 0
    train_steps: int = 0
    examples_per_second: float = 0.0
    num_replicas: int = 0
    global_batch_size: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    activity: str = ""
    stalled_secs: float = 0.0
    epoch: int = 0
    epochs: int = 0
    learning_rate: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    time: float = 0.0
    task: str = ""
    started: float = 0.0

    def to_json(self) -> str:
        """Returns the report as one line, without a line break."""
        # Paths in messages may have bytes that are not UTF-8, as lone surrogates.
        text = self.message.encode(errors="backslashreplace").decode()
        return _PROGRESS.dump_json(replace(self, message=text)).decode()

    @staticmethod
    def from_json(line: str | bytes) -> "Progress":
        """Parses one line; ignores unknown keys. Raises ValueError if it is not one."""
        return _PROGRESS.validate_json(line)


_PROGRESS = TypeAdapter(Progress)


@dataclass(frozen=True)
class Activity:
    """The current work of a process's main thread; any progress makes a new object.

    Work that is not `limited` may take any amount of time, such as a `run_fn`.
    """

    name: str
    limited: bool = True


class Reporter:
    """Writes the reports of the process `task` immediately.

    A report that cannot be written, for instance because the disk is full, is dropped.
    Without a `path`, reports go to standard output.

    Attributes:
      activity: The current work of the main thread.
      listeners: Called with each report, and with those of `record`.
      last: The last report that was not only recorded.
    """

    def __init__(self, path: str | None, task: str = ""):
        self._path, self.task, self.started = path, task, time.time()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if path else None
        self._lock = threading.Lock()  # the watchdog reports too
        self._began, self._last_time = time.monotonic(), 0.0
        self.last = Progress("start")
        self.activity = Activity("start-up")
        self.listeners: list[Callable[[Progress], None]] = []

    def enter(self, name: str, limited: bool = True) -> None:
        """Records that the main thread has begun new work; see `Activity`."""
        self.activity = Activity(name, limited)

    def give_sign_of_life(self) -> None:
        """Touches the file to show the launcher that this process is running."""
        if self._path:
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def due(self) -> bool:
        """Returns True if the phase `train` may report again."""
        now = time.monotonic()
        interval = min(max(REPORT_SECONDS, REPORT_SHARE * (now - self._began)), MAX_REPORT_SECONDS)
        return now - self._last_time >= interval

    def report(self, progress: Progress) -> None:
        """Writes one line."""
        self._last_time, self.last = time.monotonic(), progress
        self._write(self.record(progress))

    def record(self, progress: Progress) -> Progress:
        """Tells the listeners of a report, but writes no line; returns the report."""
        progress = replace(progress, time=time.time(), task=self.task, started=self.started)
        for listener in self.listeners:
            listener(progress)
        return progress

    def report_stall(self, activity: str, seconds: float) -> None:
        """Repeats the last report, with the work that has been stuck for `seconds`."""
        last = replace(self.last, message="", metrics={}, examples_per_second=0.0)
        self._write(self.record(replace(last, activity=activity, stalled_secs=seconds)))

    def _write(self, progress: Progress) -> None:
        line = progress.to_json() + "\n"
        with self._lock, contextlib.suppress(OSError):
            if self._file is None:
                sys.stdout.write(line)
                sys.stdout.flush()
                return
            os.write(self._file, line.encode())

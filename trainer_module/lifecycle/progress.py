"""Reports a training process's progress, one JSON object per line.

Each process writes to a separate file, which a launcher on the same machine reads as it
grows. On other machines the lines go to standard output, and so to the process's log.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace

# Environment variable: path of the file; if unset, reports go to standard output.
PROGRESS_FILE = "TFX_DISTRIBUTE_PROGRESS"
# Factor of the heartbeat timeout on one machine: while the machine is paused, all of
# its processes miss heartbeats together.
LOCAL_HEARTBEATS = 10


@dataclass(frozen=True)
class Progress:
    """The progress of a training process.

    Attributes:
      phase: `start`, `train`, `export` or `done`; `serve` for a process that a
        coordinator uses, `evaluate` for an evaluator.
      step: Training steps done; for an evaluator, the epoch that it evaluated, from 1.
      train_steps: Total number of training steps; 0 if unknown.
      examples_per_second: Recent training speed of this process's replicas.
      num_replicas: Replicas that train in step, over all processes.
      global_batch_size: Examples per training step, over all processes.
      metrics: Running values of the loss and the metrics.
      message: A message for the user, sent once.
      activity: The work that is stuck, and where; empty while there is progress.
      stalled_secs: Seconds for which it has been stuck.
      in_tensorflow: True if it is stuck inside TensorFlow, where it may be waiting for
        another process.
      epoch: Number of the epoch, from 1; 0 before the first.
      epochs: Number of epochs in total; 0 if unknown.
      learning_rate: The optimizer's learning rate; None if unknown.
      seconds: Seconds by activity since the try began to train, each one of
        `time_use.ACTIVITIES`; None if unknown.
      counters: Numbers over the same time, each one of `time_use.COUNTERS`.
    """

    phase: str
    step: int = 0
    train_steps: int = 0
    examples_per_second: float = 0.0
    num_replicas: int = 0
    global_batch_size: int = 0
    metrics: Mapping[str, float] | None = None
    message: str = ""
    activity: str = ""
    stalled_secs: float = 0.0
    in_tensorflow: bool = False
    epoch: int = 0
    epochs: int = 0
    learning_rate: float | None = None
    seconds: Mapping[str, float] | None = None
    counters: Mapping[str, float] | None = None

    @staticmethod
    def from_json(line: str) -> "Progress":
        """Parses one line; ignores keys that it does not know."""
        return Progress(**{name: value for name, value in json.loads(line).items() if name in _FIELDS})


_FIELDS = frozenset(field.name for field in fields(Progress))


class Activity:
    """The current work of a process's main thread; any progress makes a new object.

    Attributes:
      name: Name for messages, such as `build_model`.
      limited: False for work that may take any amount of time, such as a `run_fn` or
        serving a coordinator.
    """

    def __init__(self, name: str, limited: bool = True):
        self.name = name
        self.limited = limited


class Reporter:
    """Writes `Progress` lines immediately.

    A report that cannot be written, for instance because the disk is full, is dropped.

    Args:
      path: Path of the progress file; None for standard output.

    Attributes:
      interval: Minimum seconds between two reports of the phase `train`.
      activity: The current work of the main thread.
      listeners: Called with each report, and with those of `record`.
    """

    interval = 0.5

    def __init__(self, path: str | None):
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if path else None
        self._lock = threading.Lock()  # the watchdog reports too
        self._torn = False
        self._last_time = 0.0
        self._last = Progress("start")
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
        return time.monotonic() - self._last_time >= self.interval

    def report(self, progress: Progress) -> None:
        """Writes one line."""
        self._last_time, self._last = time.monotonic(), progress
        self.record(progress)
        self._write(progress)

    def record(self, progress: Progress) -> None:
        """Tells the listeners of a report, but writes no line."""
        for listener in self.listeners:
            listener(progress)

    def report_stall(self, activity: str, seconds: float, in_tensorflow: bool) -> None:
        """Repeats the last report, with the work that has been stuck for `seconds`."""
        last = replace(self._last, message="", metrics=None, examples_per_second=0.0)
        self._write(replace(last, activity=activity, stalled_secs=seconds, in_tensorflow=in_tensorflow))

    def _write(self, progress: Progress) -> None:
        line = json.dumps(asdict(progress)) + "\n"
        with self._lock, contextlib.suppress(OSError):
            if self._file is None:
                sys.stdout.write(line)
                sys.stdout.flush()
                return
            data = ("\n" + line if self._torn else line).encode()
            # After a partial write, the next line has to begin with a line break.
            self._torn = True
            self._torn = os.write(self._file, data) < len(data)

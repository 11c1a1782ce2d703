"""What a training process says about itself while it runs: one JSON object a line, in a file of its own.

A launcher on the same machine reads the file as it grows. Elsewhere the chief's log carries the same lines.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

PROGRESS_FILE = "TFX_DISTRIBUTE_PROGRESS"  # environment variable: where to write; unset: standard output
LOCAL_HEARTBEATS = 10  # that all processes of one machine may miss together, as they do while it is paused


@dataclass(frozen=True)
class Progress:
    """Where a training process is.

    Attributes:
      phase: `start`, `train`, `export` or `done`; `serve` of a process that a coordinator uses, `evaluate` of an evaluator.
      step: Training steps taken; of an evaluator, the epoch that it has evaluated, from 1.
      train_steps: Training steps in all; 0 where unknown.
      examples_per_second: Examples that this process's replicas trained on per second, lately.
      num_replicas: Replicas that train in step, over all processes.
      global_batch_size: Examples per training step, over all processes.
      metrics: Running values of the loss and the metrics.
      message: What a person should know, once.
      activity: The work that makes no progress, and where; empty while all goes well.
      stalled_secs: Seconds for which it has made none.
      in_tensorflow: Whether it is inside TensorFlow, so that it may be waiting for another process.
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

    @staticmethod
    def from_json(line: str) -> "Progress":
        """Reads one line."""
        return Progress(**json.loads(line))


class Activity:
    """The work that a process's main thread is in; a new object each time that it gets on.

    Attributes:
      name: Words for messages, such as `build_model`.
      limited: False for work that may take any time, such as serving a coordinator or a `run_fn`.
    """

    def __init__(self, name: str, limited: bool = True):
        self.name = name
        self.limited = limited


class Reporter:
    """Writes `Progress` lines, each at once. A report that cannot be written, since the disk is full, is left out.

    Attributes:
      interval: Least seconds between two reports of the phase `train`.
      activity: The work that the main thread is in.
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

    def enter(self, name: str, limited: bool = True) -> None:
        """Notes that the main thread has got on, and with what it begins now; see `Activity`."""
        self.activity = Activity(name, limited)

    def give_sign_of_life(self) -> None:
        """Touches the file, so that the launcher sees that this process runs."""
        if self._path:
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def due(self) -> bool:
        """Whether the phase `train` may report again."""
        return time.monotonic() - self._last_time >= self.interval

    def report(self, progress: Progress) -> None:
        """Writes one line."""
        self._last_time, self._last = time.monotonic(), progress
        self._write(progress)

    def report_stall(self, activity: str, seconds: float, in_tensorflow: bool) -> None:
        """Repeats the last report, with the work that has not got on for so many seconds."""
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
            self._torn = True  # unless all of it is written: the next line then begins with a line break
            self._torn = os.write(self._file, data) < len(data)

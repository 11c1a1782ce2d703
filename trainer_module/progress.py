"""What a training process says about itself while it runs: one JSON object a line, in a file of its own.

A launcher on the same machine reads the file as it grows. Elsewhere the chief's log carries the same lines.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TextIO

PROGRESS_FILE = "TFX_DISTRIBUTE_PROGRESS"  # environment variable: where to write; unset: standard output


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
    """

    phase: str
    step: int = 0
    train_steps: int = 0
    examples_per_second: float = 0.0
    num_replicas: int = 0
    global_batch_size: int = 0
    metrics: Mapping[str, float] | None = None
    message: str = ""

    @staticmethod
    def from_json(line: str) -> "Progress":
        """Reads one line."""
        return Progress(**json.loads(line))


class Reporter:
    """Writes `Progress` lines, flushed one by one.

    Attributes:
      interval: Least seconds between two reports of the phase `train`.
    """

    interval = 0.5

    def __init__(self, path: str | None):
        self._file: TextIO = open(path, "a", encoding="utf-8") if path else sys.stdout  # noqa: SIM115
        self._path = path
        self._last = 0.0

    def give_signs_of_life(self) -> None:
        """From now on, touches the file once a second for as long as this process is able to."""
        if self._path:
            threading.Thread(target=_touch, args=(self._path,), daemon=True, name="signs-of-life").start()

    def due(self) -> bool:
        """Whether the phase `train` may report again."""
        return time.monotonic() - self._last >= self.interval

    def report(self, progress: Progress) -> None:
        """Writes one line."""
        self._last = time.monotonic()
        self._file.write(json.dumps(asdict(progress)) + "\n")
        self._file.flush()


def _touch(path: str) -> None:
    while True:
        os.utime(path)
        time.sleep(1.0)

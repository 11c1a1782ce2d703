"""Passes on what the chief's pod prints, while it runs."""

import collections
import contextlib
import time
from typing import TYPE_CHECKING

from absl import logging

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.kubernetes.pods import LAST_LINES
from tfx_distribute.components.launchers.progress_log import ProgressLog
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.reporting.progress import Progress

if TYPE_CHECKING:
    from kubernetes import client

    from tfx_distribute.components.launchers.kubernetes.client import JobClient


class ChiefLog:
    """The log of the chief's pod, and then of those that take its place.

    `last_lines` are the last that were passed on, without reports of progress.
    """

    def __init__(self) -> None:
        self._last_times: dict[str, str] = {}  # pod's uid -> time of the last line passed on
        self._read_at: dict[str, float] = {}  # pod's uid -> when it was last read, by our clock
        self._progress_log = ProgressLog()
        self.last_lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)

    def read(self, jobs: "JobClient", pod: "client.V1Pod") -> None:
        """Passes on the lines that are new."""
        uid, now = pod.metadata.uid, time.monotonic()
        since = int(now - self._read_at[uid]) + timeouts.CLOCK_SECONDS if uid in self._read_at else None
        lines = jobs.read_log(pod.metadata.name, since_seconds=since)
        if lines is None:  # it prints nothing yet, or cannot be read now
            return
        self._read_at[uid] = now
        for line in lines:
            at, _, text = line.partition(" ")
            if at <= self._last_times.get(uid, ""):
                continue
            self._last_times[uid] = at
            if text.startswith('{"phase"'):
                with contextlib.suppress(ValueError, TypeError):
                    self._progress_log(CHIEF_TASK, Progress.from_json(text))
                    continue
            self.last_lines.append(text)
            logging.info("%s: %s", CHIEF_TASK, text)

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
        # Pod's uid -> when it was read, by our clock, and the time of its last line.
        self._read: dict[str, tuple[float, str]] = {}
        self._progress_log = ProgressLog()
        self.last_lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)

    def read(self, jobs: "JobClient", pod: "client.V1Pod") -> None:
        """Passes on the lines that are new."""
        uid, now = pod.metadata.uid, time.monotonic()
        read_at, last_time = self._read.get(uid, (0.0, ""))
        since = int(now - read_at) + timeouts.CLOCK_SECONDS if read_at else None
        lines = jobs.read_log(pod.metadata.name, since_seconds=since)
        if lines is None:  # it prints nothing yet, or cannot be read now
            return
        for line in lines:
            at, _, text = line.partition(" ")
            if at <= last_time:
                continue
            last_time = at
            if text.startswith('{"phase"'):
                with contextlib.suppress(ValueError):
                    self._progress_log(CHIEF_TASK, Progress.from_json(text))
                    continue
            self.last_lines.append(text)
            logging.info("%s: %s", CHIEF_TASK, text)
        self._read[uid] = (now, last_time)

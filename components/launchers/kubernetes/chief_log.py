"""Passes on what the chief's pod prints, while it runs."""

import collections
import time

from absl import logging
from kubernetes import client

from tfx_distribute.components.launchers.kubernetes.client import LAST_LINES, JobClient
from tfx_distribute.trainer_module.lifecycle.progress import Progress, describe, log_interval

OVERLAP_SECONDS = 60  # by which our clock and the cluster's may differ
PROGRESS_SECONDS = 10.0  # between two reports of progress, at least


class ChiefLog:
    """The log of the chief's pod, and then of those that take its place.

    Attributes:
      last_lines: The last lines that were passed on.
    """

    def __init__(self) -> None:
        self._last_times: dict[str, str] = {}  # pod's uid -> time of the last line passed on
        self._read_at: dict[str, float] = {}  # pod's uid -> when it was last read, by our clock
        self._begun_at, self._progress_shown_at = time.monotonic(), 0.0
        self.last_lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)

    def read(self, jobs: JobClient, pod: client.V1Pod) -> None:
        """Passes on the lines that are new.

        Args:
          jobs: Client of the job.
          pod: The chief's pod.
        """
        uid, now = pod.metadata.uid, time.monotonic()
        since = int(now - self._read_at[uid]) + OVERLAP_SECONDS if uid in self._read_at else None
        lines = jobs.read_log(pod.metadata.name, since_seconds=since)
        if lines is None:  # it prints nothing yet, or cannot be read now
            return
        self._read_at[uid] = now
        for line in lines:
            at, _, text = line.partition(" ")
            if at <= self._last_times.get(uid, ""):
                continue
            self._last_times[uid] = at
            shown = self._as_text(text)
            if shown:
                self.last_lines.append(shown)
                logging.info("chief: %s", shown)

    def _as_text(self, line: str) -> str:
        """Returns a line for people to read; empty for most reports of progress."""
        if not line.startswith('{"phase"'):
            return line
        try:
            progress = Progress.from_json(line)
        except (ValueError, TypeError):
            return line
        now = time.monotonic()
        is_early = now - self._progress_shown_at < max(PROGRESS_SECONDS, log_interval(now - self._begun_at))
        if progress.phase == "train" and is_early and not (progress.message or progress.stalled_secs):
            return ""
        self._progress_shown_at = now
        return describe(progress)

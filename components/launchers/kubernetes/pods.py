"""Reads what the pods of a training report and print."""

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from absl import logging

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.kubernetes.job_kinds import CONTAINER
from tfx_distribute.components.launchers.progress_log import ProgressLog
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.liveness import exit_codes
from tfx_distribute.trainer_module.reporting.progress import Progress

if TYPE_CHECKING:
    from kubernetes import client

    from tfx_distribute.components.launchers.kubernetes.client import JobClient

LAST_LINES = 20  # of a pod's log
_NOT_STARTED = ("StartError", "ContainerCannotRun")


@dataclass(frozen=True)
class PodEnd:
    """Failure of a pod, if it has failed.

    Attributes:
      how: How it failed; empty if it has not failed.
      at: When it failed, in seconds since 1970; 0 if that is unknown.
      is_final: True if another attempt would fail too.
    """

    name: str
    how: str = ""
    at: float = float("inf")
    is_final: bool = False
    last_lines: tuple[str, ...] = ()

    @staticmethod
    def of(pod: "client.V1Pod") -> "PodEnd":
        """Reads a pod's status."""
        name = pod.metadata.name
        if pod.status.reason:  # such as Evicted
            return PodEnd(name, f"failed ({pod.status.reason}: {pod.status.message or ''})", 0.0)
        state = _training_state(pod)
        end = state and state.terminated
        if not end or not end.exit_code:
            return PodEnd(name)
        at = end.finished_at.timestamp() if end.finished_at else 0.0
        # The container's own words are in its log. If it could not even be started,
        # there are others.
        words = f": {end.message}" if end.message and end.reason in _NOT_STARTED else ""
        how = f"ended with exit code {end.exit_code} ({end.reason or 'Error'}{words})"
        # A process may fail because its pod is being deleted.
        return PodEnd(name, how, at, exit_codes.is_final(end.exit_code) and not pod.metadata.deletion_timestamp)


def has_started(pod: "client.V1Pod") -> bool:
    """Returns True if the training in a pod has started; it may have ended since."""
    state = _training_state(pod)
    return pod.status.phase in ("Running", "Succeeded") or bool(state and (state.running or state.terminated))


def has_trained(pod: "client.V1Pod") -> bool:
    """Returns True if the training in a pod has succeeded.

    The pod itself fails if another of its containers does, and runs until all have
    ended.
    """
    state = _training_state(pod)
    end = state and state.terminated
    return pod.status.phase == "Succeeded" or (end is not None and end.exit_code == 0)


def _training_state(pod: "client.V1Pod") -> "client.V1ContainerState | None":
    """Returns the state of the container that trains; None if it has none yet."""
    return next((each.state for each in pod.status.container_statuses or () if each.name == CONTAINER), None)


class ChiefLog:
    """The log of the chief's pod, and then of those that take its place."""

    def __init__(self) -> None:
        # Pod's uid -> when it was read, by our clock, and the time of its last line.
        self._read: dict[str, tuple[float, str]] = {}
        self._progress_log = ProgressLog()

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
            logging.info("%s: %s", CHIEF_TASK, text)
        self._read[uid] = (now, last_time)

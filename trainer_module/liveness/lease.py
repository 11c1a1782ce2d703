"""Stops a training on other machines when the pipeline step that follows it has gone.

The step renews a lease. When a run is cancelled, the step may have no time to remove
what it started. A chief whose lease expires saves its state and exits, which ends the
training. The others watch the lease too, as the chief may still wait for a machine.
Another attempt of the step takes the lease, so that an earlier one that is still
running sees that the training is no longer its own.
"""

import functools
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files, timeouts
from tfx_distribute.trainer_module.liveness import exit_codes, preemption
from tfx_distribute.trainer_module.liveness.failure_report import Failure
from tfx_distribute.trainer_module.reporting.process_log import LOGGER

# Environment variable: path or address of the lease; if unset, there is no lease.
LEASE_VARIABLE = "TFX_DISTRIBUTE_FOLLOWED"
_POLLS = 30  # readings without a renewal, after which a lease has expired


class Lease:
    """A lease at a path or address that one process holds until another takes it."""

    def __init__(self, path: str):
        self.path = path
        self._holder = uuid.uuid4().hex

    def take(self) -> None:
        """Takes the lease, from whoever holds it."""
        document = {"holder": self._holder, "sign": uuid.uuid4().hex, "time": time.time()}
        atomic_files.write(self.path, json.dumps(document))

    def renew(self) -> None:
        """Renews the lease, unless it is lost."""
        if not self.is_lost():
            self.take()

    def is_lost(self) -> bool:
        """Returns True if another process has taken the lease."""
        return _read(self.path).get("holder", self._holder) != self._holder


def last_renewal(path: str) -> float | None:
    """Returns when the lease was last renewed; None if never or if it is unreadable.

    In seconds since 1970, by the clock of the machine that renewed it.
    """
    try:
        return float(_read(path)["time"])
    except (ValueError, KeyError, TypeError):
        return None


def _read(path: str) -> dict[str, Any]:
    """Returns the document of a lease; an empty one if there is none to read."""
    try:
        document = json.loads(atomic_files.read(path) or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def find() -> str | None:
    """Returns the path or address of this process's lease; None if it has none."""
    return os.environ.get(LEASE_VARIABLE) or None


def watch(is_chief: bool) -> None:
    """Starts a thread that ends this process when its lease expires, if it has one.

    The chief ends first.
    """
    path = find()
    seconds = timeouts.ABANDONED_SECONDS + (0.0 if is_chief else timeouts.AFTER_CHIEF_SECONDS)
    if path:
        leave = functools.partial(_leave, seconds)
        threading.Thread(target=_watch, args=(path, seconds, leave), daemon=True, name="lease-monitor").start()


def _watch(path: str, seconds: float, leave: Callable[[], None]) -> None:
    lease, unchanged = None, 0
    while unchanged < _POLLS:  # not a time: a machine that was suspended misses renewals
        unchanged += 1
        try:
            current = atomic_files.read(path)
        except (OSError, tf.errors.OpError):  # the storage is temporarily unavailable
            current = None
        # Any change counts as a renewal; the time in it does not matter, as clocks
        # differ.
        if current is not None and current != lease:
            lease, unchanged = current, 0
        time.sleep(seconds / _POLLS)
    leave()


def _leave(seconds: float) -> None:
    reason = f"no pipeline step has followed this training for {seconds:g} s, so it ends"
    LOGGER.info(reason)
    Failure(reason, expected=True).report()  # otherwise Vertex AI would start this process again
    preemption.leave(exit_codes.ABANDONED)

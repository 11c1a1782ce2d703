"""A sign of life in the other direction: of the step that follows a training on other machines, for its chief.

Whoever ends a run may leave that step no time to remove what it started. A chief that nobody follows any more saves its
state, leaves, and with it the training ends.
"""

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable

import tensorflow as tf

from tfx_distribute.trainer_module.lifecycle import atomic_files, exit_codes, preemption
from tfx_distribute.trainer_module.lifecycle.clock import RunningClock
from tfx_distribute.trainer_module.lifecycle.failure_report import ERROR_FILE, Failure

FOLLOWED_FILE = "TFX_DISTRIBUTE_FOLLOWED"  # environment variable: what the follower renews; unset: nobody follows
RENEW_SECONDS = 60.0
# Longer than a follower waits for a cluster that does not answer, and than another try of its step takes to come.
ABANDONED_SECONDS = 1800.0


def renew(path: str) -> None:
    """Gives a sign of life."""
    atomic_files.write(path, json.dumps({"sign": uuid.uuid4().hex, "time": time.time()}))


def last_time(path: str) -> float | None:
    """When the last sign of life was given, by the clock of who gave it, seconds since 1970; None where there is none."""
    text = atomic_files.read(path)
    try:
        return None if text is None else float(json.loads(text)["time"])
    except (ValueError, KeyError, TypeError):
        return None


def watch() -> None:
    """Has this process leave when nobody follows it any more, if it is followed at all."""
    path = os.environ.get(FOLLOWED_FILE)
    if path:
        threading.Thread(target=_watch, args=(path, _leave), daemon=True, name="follower").start()


def _watch(path: str, leave: Callable[[], None]) -> None:
    poll = min(RENEW_SECONDS, ABANDONED_SECONDS / 10)
    clock = RunningClock(longest_gap=2 * poll)  # while this process is suspended, it misses what its follower renews
    sign, seen = None, 0.0
    while clock.seconds() - seen < ABANDONED_SECONDS:
        try:
            found = atomic_files.read(path)
        except (OSError, tf.errors.OpError):  # a storage that does not answer now
            found = None
        # What changes counts, not the time in it: clocks differ.
        if found is not None and found != sign:
            sign, seen = found, clock.seconds()
        time.sleep(poll)
    leave()


def _leave() -> None:
    why = f"nobody has followed this training for {ABANDONED_SECONDS:g} s, so it ends"
    print(why, flush=True)
    path = os.environ.get(ERROR_FILE)
    if path:  # or Vertex AI would start this process again
        with contextlib.suppress(OSError, tf.errors.OpError):
            Failure(why, expected=True).write(path)
    preemption.leave(exit_codes.ABANDONED)

"""Gives signs of life, reports a main thread that makes no progress, and ends the process when it stays stuck.

A launcher on the same machine sees a process that is stopped or dead by its missing signs of life. A process whose main
thread sleeps, waits for a lock or for data still gives them, so each process watches its own main thread as well.
"""

import contextlib
import faulthandler
import os
import sys
import threading
import time
from types import FrameType

from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.lifecycle import exit_codes
from tfx_distribute.trainer_module.lifecycle.clock import RunningClock
from tfx_distribute.trainer_module.lifecycle.failure_report import ERROR_FILE, Failure
from tfx_distribute.trainer_module.lifecycle.progress import Reporter

SIGN_SECONDS = 1.0
REMARK_SECONDS = 60.0  # without progress before it is reported; then after twice as long, and so on
GIVE_UP_SECONDS = 20.0  # for saying why it ends
# A process inside TensorFlow may only be waiting for a peer. It is reported and ended later than one outside, so that the
# peer that holds everybody up is the one that is named.
WAITING_FACTOR = 1.25

_TENSORFLOW = ("tensorflow", "tf_keras", "keras")


def start(reporter: Reporter, task: ClusterTask, timeout: float) -> None:
    """Starts the thread that watches this process's main thread. To be called in the main thread.

    Args:
      reporter: Knows what the main thread is doing, and takes the reports.
      task: This process, for messages.
      timeout: Seconds without progress after which the process ends with `exit_codes.NO_PROGRESS`; 0 for no limit.
    """
    arguments = (reporter, task, timeout, threading.get_ident())
    threading.Thread(target=_watch, args=arguments, daemon=True, name="watchdog").start()


def _watch(reporter: Reporter, task: ClusterTask, timeout: float, thread: int) -> None:
    clock = RunningClock()
    first_remark = min(REMARK_SECONDS, timeout / 2) if timeout else REMARK_SECONDS
    activity, since, remark_after = reporter.activity, 0.0, first_remark
    while True:
        reporter.give_sign_of_life()
        time.sleep(SIGN_SECONDS)
        now = clock.seconds()
        if reporter.activity is not activity:
            activity, since, remark_after = reporter.activity, now, first_remark
        if not activity.limited:
            continue
        stalled = now - since
        if stalled < remark_after and not (timeout and stalled >= timeout):
            continue
        in_tensorflow, line = _position(sys._current_frames().get(thread))
        factor = WAITING_FACTOR if in_tensorflow else 1.0
        what = f"{activity.name} ({line})" if line else activity.name
        if timeout and stalled >= timeout * factor:
            _give_up(f"{task} made no progress for {stalled:.0f} s in {what}")
        if stalled >= remark_after * factor:
            reporter.report_stall(what, stalled, in_tensorflow)
            remark_after *= 2


def _position(frame: FrameType | None) -> tuple[bool, str]:
    """Returns whether a thread is inside TensorFlow, and its innermost line that is neither TensorFlow's nor ours."""
    in_tensorflow: bool | None = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in sys.stdlib_module_names and package != "__main__":  # which is ours
            if in_tensorflow is None:
                in_tensorflow = package in _TENSORFLOW
            if package not in (*_TENSORFLOW, "tfx_distribute"):
                return in_tensorflow, f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"
        frame = frame.f_back
    return bool(in_tensorflow), ""


def _give_up(message: str) -> None:
    """Says why, and ends the process."""
    message += "; if it needs more time, write a larger progress_timeout_secs, or 0 for no limit"
    try:
        # In a thread of its own: the log and the file may be on storage that does not answer.
        telling = threading.Thread(target=_tell, args=(message,), daemon=True, name="last words")
        telling.start()
        telling.join(GIVE_UP_SECONDS)
    finally:
        os._exit(exit_codes.NO_PROGRESS)


def _tell(message: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(message, file=sys.stderr, flush=True)
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
    path = os.environ.get(ERROR_FILE)
    if path:
        with contextlib.suppress(Exception):  # the message is in the log
            Failure(message, expected=True, final=False).write(path)

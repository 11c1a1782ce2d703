"""Shows that this process is alive, and ends it if its main thread stays stuck.

The signs of life let a launcher on the same machine notice a process that is stopped or
dead. But a process still gives them while its main thread sleeps or waits for a lock or
for data. So each process also watches its own main thread, and reports it when it makes
no progress.
"""

import contextlib
import faulthandler
import os
import sys
import threading
import time
from types import FrameType

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.liveness import exit_codes
from tfx_distribute.trainer_module.liveness.failure_report import Failure
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.reporting.progress import Reporter

# A process inside TensorFlow may only be waiting for a peer. It is reported and ended
# later than one outside, so that the message names the peer that all are waiting for.
WAITING_FACTOR = 1.25

_TENSORFLOW = ("tensorflow", "tf_keras", "keras")


def start(reporter: Reporter, task: ClusterTask, timeout: float) -> None:
    """Starts a thread that watches this process's main thread.

    Call this in the main thread. The process ends with `exit_codes.NO_PROGRESS` after
    `timeout` seconds without progress; 0 is no limit. `reporter` knows the main
    thread's current work, and writes the reports.
    """
    arguments = (reporter, task, timeout, threading.get_ident())
    threading.Thread(target=_watch, args=arguments, daemon=True, name="watchdog").start()


def _watch(reporter: Reporter, task: ClusterTask, timeout: float, thread: int) -> None:
    first_report = min(timeouts.STALL_REPORT_SECONDS, timeout / 2) if timeout else timeouts.STALL_REPORT_SECONDS
    activity, since, report_after = reporter.activity, time.monotonic(), first_report
    while True:
        reporter.give_sign_of_life()
        time.sleep(timeouts.SIGN_SECONDS)
        now = time.monotonic()
        if reporter.activity is not activity:
            activity, since, report_after = reporter.activity, now, first_report
        if not activity.limited:
            continue
        stalled = now - since
        if stalled < report_after and not (timeout and stalled >= timeout):
            continue
        in_tensorflow, line = _position(sys._current_frames().get(thread))
        factor = WAITING_FACTOR if in_tensorflow else 1.0
        work = f"{activity.name} ({line})" if line else activity.name
        if timeout and stalled >= timeout * factor:
            _give_up(f"{task} made no progress for {stalled:.0f} s in {work}")
        if stalled >= report_after * factor:
            reporter.report_stall(work, stalled)
            report_after *= 2


def _position(frame: FrameType | None) -> tuple[bool, str]:
    """Finds out where a thread is.

    Returns True if it is inside TensorFlow, and the innermost line of the user's code.
    """
    in_tensorflow: bool | None = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in sys.stdlib_module_names and package != "__main__":  # `__main__` is this package's
            if in_tensorflow is None:
                in_tensorflow = package in _TENSORFLOW
            if package not in (*_TENSORFLOW, "tfx_distribute"):
                return in_tensorflow, f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"
        frame = frame.f_back
    return bool(in_tensorflow), ""


def _give_up(message: str) -> None:
    message += "; if it needs more time, write a larger progress_timeout_secs, or 0 for no limit"
    try:
        # In another thread, since the storage of the log or the file may not respond.
        writer = threading.Thread(target=_write_reason, args=(message,), daemon=True, name="reason")
        writer.start()
        writer.join(timeouts.REASON_SECONDS)
    finally:
        os._exit(exit_codes.NO_PROGRESS)


def _write_reason(message: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        LOGGER.error(message)
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
    Failure(message, expected=True, final=False).report()

"""SIGTERM: this process is about to be taken away.

While it trains, it saves its state and leaves; at any other time it leaves at once. Either way its exit code is that of a
process that SIGTERM ended, which the Training Operator (`restartPolicy: ExitCode`: 128 and more) and Vertex AI try again.
It goes the same way, with another exit code, where it has to `leave` for another reason.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from tfx_distribute.trainer_module.lifecycle import exit_codes

LEAVE_SECONDS = 22.0  # for saving; Kubernetes and Vertex AI kill after 30

_asked = threading.Event()
_can_save = threading.Event()
_exit_code = exit_codes.PREEMPTED
_forking = threading.local()  # mask: the signals that the thread had blocked before it forked


def watch() -> None:
    """Begins to listen for SIGTERM. To be called in the main thread.

    Again when the strategy is made: TensorFlow's coordination service then takes the signal for itself.
    """
    _reset_in_forks()
    signal.signal(signal.SIGTERM, _leave_to_listener)
    signal.set_wakeup_fd(_listener(os.getpid()), warn_on_full_buffer=False)


def _leave_to_listener(number: int, frame: FrameType | None) -> None:
    """Does nothing, so that Python only writes the signal to the pipe that the listener reads."""


@functools.cache
def _reset_in_forks() -> None:
    """Has every process that this one forks from now on end on SIGTERM, as usual."""
    # A fork inherits the pipe: a SIGTERM to it would be written there, and end this process.
    os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_reset)


def _hold_back() -> None:
    # A fork may be terminated before it can reset anything.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _reset() -> None:
    signal.set_wakeup_fd(-1)
    if signal.getsignal(signal.SIGTERM) is _leave_to_listener:  # not one that the module has set
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_through()


@functools.cache
def _listener(pid: int) -> int:
    """Starts the thread that listens, once in a process; returns where signals are to be written to."""
    # Python's own handlers wait until TensorFlow returns, which may take longer than there is time. This pipe does not.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    threading.Thread(target=_listen, args=(reader,), daemon=True, name="preemption").start()
    return writer


def leave(exit_code: int) -> None:
    """Has this process save and leave as SIGTERM does. To be called in any thread.

    Args:
      exit_code: What it ends with.
    """
    global _exit_code
    _exit_code = exit_code
    if _can_save.is_set():
        os.kill(os.getpid(), signal.SIGTERM)  # which the listener hears
    else:
        os._exit(exit_code)


def exit_code() -> int:
    """What a process ends with that was told to leave."""
    return _exit_code


def preemption_requested() -> bool:
    """Whether this process is to save and leave."""
    return _asked.is_set()


@contextlib.contextmanager
def deferring_exit() -> Iterator[None]:
    """Within the block, whoever runs it looks at `asked` and leaves by itself."""
    _can_save.set()
    try:
        yield
    finally:
        _can_save.clear()


def _listen(reader: int) -> None:
    while signal.SIGTERM not in os.read(reader, 64):
        pass
    _asked.set()
    if _can_save.is_set():
        threading.Event().wait(LEAVE_SECONDS)
        print(f"told to leave, and not done with saving within {LEAVE_SECONDS:g} s", file=sys.stderr, flush=True)
    os._exit(_exit_code)

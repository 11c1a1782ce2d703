"""Handles SIGTERM, which announces that this process's machine is taken away.

During training the process saves its state and exits; at any other time it exits at
once. Its exit code is that of a process ended by SIGTERM, after which the training is
started again. `leave` does the same for other reasons, with another exit code.

The platform gives each container a time to end in, after which it kills the container.
Most of it is for saving; the rest is for processes to end, and for the launcher that
waits for them. Imports no TensorFlow.
"""

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from types import FrameType

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.liveness import exit_codes
from tfx_distribute.trainer_module.reporting.process_log import LOGGER

# Environment variable: seconds from SIGTERM to SIGKILL, where they are not the usual
# ones.
GRACE = "TFX_DISTRIBUTE_TERMINATION_GRACE_SECONDS"
SAVING_SHARE = 0.75
LAUNCHER_SHARE = 5 / 6  # longer than processes save, and with time for their end

_requested = threading.Event()
_can_save = threading.Event()
_exit_code = exit_codes.PREEMPTED
_forking = threading.local()  # mask: signals that the thread had blocked before it forked


def saving_seconds(environment: Mapping[str, str]) -> float:
    """Returns how long a training process may save before it ends."""
    return SAVING_SHARE * _find_grace(environment)


def launcher_seconds(environment: Mapping[str, str]) -> float:
    """Returns how long a launcher waits for its training processes to save and end."""
    return LAUNCHER_SHARE * _find_grace(environment)


def _find_grace(environment: Mapping[str, str]) -> float:
    return float(environment.get(GRACE, timeouts.TERMINATION_SECONDS))


def watch() -> None:
    """Starts listening for SIGTERM. Call this in the main thread.

    Call it again after making the strategy: TensorFlow's coordination service takes
    over the signal then.
    """
    _reset_in_forks()
    signal.signal(signal.SIGTERM, _ignore)
    signal.set_wakeup_fd(_start_listener(os.getpid()), warn_on_full_buffer=False)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Does nothing: Python then only writes the signal to the listener's pipe."""


@functools.cache
def _reset_in_forks() -> None:
    """Restores the usual effect of SIGTERM in all processes forked from now on."""
    # A fork inherits the pipe, so a SIGTERM to the fork would end this process.
    os.register_at_fork(before=_block_sigterm, after_in_parent=_restore_mask, after_in_child=_reset)


def _block_sigterm() -> None:
    # The fork may receive SIGTERM before it has reset anything.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _restore_mask() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _reset() -> None:
    signal.set_wakeup_fd(-1)
    if signal.getsignal(signal.SIGTERM) is _ignore:  # keeps a handler of the user's module
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _restore_mask()


@functools.cache
def _start_listener(pid: int) -> int:
    """Starts the listener, once per process; returns the pipe to write signals to."""
    # Python's own handlers run only when TensorFlow returns, which may be too late. The
    # pipe gets the signal at once.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    threading.Thread(target=_listen, args=(reader,), daemon=True, name="preemption").start()
    return writer


def leave(exit_code: int) -> None:
    """Makes this process save and exit, as on SIGTERM. May be called in any thread."""
    global _exit_code
    _exit_code = exit_code
    if _can_save.is_set():
        os.kill(os.getpid(), signal.SIGTERM)  # received by the listener
    else:
        os._exit(exit_code)


def exit_code() -> int:
    """Returns the exit code for a process that has been asked to stop."""
    return _exit_code


def preemption_requested() -> bool:
    """Returns True if this process has to save its state and exit."""
    return _requested.is_set()


@contextlib.contextmanager
def deferring_exit() -> Iterator[None]:
    """Leaves saving and exiting to the code in the block.

    That code has to check `preemption_requested` regularly; the process is ended after
    `saving_seconds` anyway.
    """
    _can_save.set()
    try:
        yield
    finally:
        _can_save.clear()


def _listen(reader: int) -> None:
    while signal.SIGTERM not in os.read(reader, 64):
        pass
    _requested.set()
    if _can_save.is_set():
        seconds = saving_seconds(os.environ)
        threading.Event().wait(seconds)
        LOGGER.error(f"asked to stop, and not done with saving within {seconds:g} s")
    os._exit(_exit_code)

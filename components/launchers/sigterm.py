"""Turns signals into an exception: a launcher ends what it has started."""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from tfx_distribute.components import timeouts

# If an exception leaves these functions, `logging` keeps a lock for which other threads
# then wait without end: https://github.com/python/cpython/blob/v3.10.13/Lib/logging/__init__.py#L1403
# The client of Kubernetes calls them for each object that it reads.
_KEEPING_A_LOCK = ("_acquireLock", "_clear_cache", "_releaseLock")


class TerminatedError(KeyboardInterrupt):
    """A signal has ended the launcher, which has ended what it had started."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Makes SIGTERM end training as Ctrl-C does, within the block.

    So does SIGHUP, which a closed terminal sends, unless it is ignored, as by `nohup`.
    TensorFlow and Beam may turn the exception of a signal into another one; the block
    ends with that of the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return

    received: list[type[KeyboardInterrupt]] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        code = frame and frame.f_code
        if code and code.co_filename == logging.__file__ and code.co_name in _KEEPING_A_LOCK:
            threading.Timer(timeouts.SIGNAL_SECONDS, os.kill, (os.getpid(), number)).start()
            return
        received.append(KeyboardInterrupt if number == signal.SIGINT else TerminatedError)
        raise received[-1]

    numbers = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    previous_handlers = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, *numbers)}
    try:
        yield
    except Exception as error:
        if received:
            raise received[-1] from error
        raise
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

"""Turns SIGTERM and SIGHUP into an exception: a launcher ends what it has started."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

_RESEND_SECONDS = 0.1


class TerminatedError(KeyboardInterrupt):
    """A signal has ended the launcher, which has ended what it had started."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Makes SIGTERM end training as Ctrl-C does, within the block.

    So does SIGHUP, which a closed terminal sends, unless it is ignored, as by `nohup`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return

    def terminate(*_: object) -> None:
        raise TerminatedError

    def resend(unraisable: Any) -> None:
        # Python ignores exceptions in destructors, and in callbacks of C code.
        if isinstance(unraisable.exc_value, TerminatedError):
            threading.Timer(_RESEND_SECONDS, os.kill, (os.getpid(), signal.SIGTERM)).start()
        else:
            previous_hook(unraisable)

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous_handlers = {number: signal.signal(number, terminate) for number in numbers}
    previous_hook, sys.unraisablehook = sys.unraisablehook, resend
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

"""Turns SIGTERM into an exception, so that a launcher ends what it has started."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class TerminatedError(KeyboardInterrupt):
    """SIGTERM has ended the launcher, which has ended what it had started."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Makes SIGTERM end training as Ctrl-C does, within the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return

    def terminate(*_: object) -> None:
        raise TerminatedError

    previous_handler = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)

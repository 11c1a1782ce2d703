"""SIGTERM to a launcher: whoever runs the pipeline wants it to end."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class TerminatedError(KeyboardInterrupt):
    """The launcher was told by SIGTERM to end; it has seen to what it started."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within the block, SIGTERM ends training as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are another's to handle
        return

    def terminate(*_: object) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

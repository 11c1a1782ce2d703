"""Turns signals into an exception: a launcher ends what it has started."""

import contextlib
import signal
import threading
from collections.abc import Iterator


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

    def interrupt(number: int, _: object) -> None:
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

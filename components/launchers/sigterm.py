"""Turns SIGTERM and SIGHUP into an exception: a launcher ends what it has started."""

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
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return

    received = []

    def terminate(number: int, _: object) -> None:
        received.append(number)
        raise TerminatedError

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous_handlers = {number: signal.signal(number, terminate) for number in numbers}
    try:
        yield
    except Exception as error:
        if received:  # in TensorFlow's own code, which makes another error of it
            raise TerminatedError from error
        raise
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

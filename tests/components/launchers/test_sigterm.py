import os
import signal
import time

import pytest

from tfx_distribute.components.launchers.sigterm import TerminatedError, terminable


@pytest.fixture(autouse=True)
def handlers():
    """Sets those of a program in a terminal: the tests may run in the background."""
    numbers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    previous = {number: signal.signal(number, handler) for number, handler in numbers.items()}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_block(number):
    with pytest.raises(TerminatedError), terminable():
        terminate(number)
    assert signal.getsignal(number) == signal.SIG_DFL


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, TerminatedError), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_that_other_code_turns_into_another_exception(number, expected):
    """As TensorFlow may, and Beam does."""

    def run() -> None:
        try:
            terminate(number)
        except KeyboardInterrupt as error:
            raise RuntimeError("KeyboardInterrupt [while running 'Read']") from error

    with pytest.raises(expected) as caught, terminable():
        run()
    assert type(caught.value) is expected


def test_a_signal_that_nohup_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with terminable():
        os.kill(os.getpid(), signal.SIGHUP)


def terminate(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
    time.sleep(1)

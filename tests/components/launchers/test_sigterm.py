import os
import signal
import time

import pytest

from tfx_distribute.components.launchers.sigterm import TerminatedError, terminable


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_block(number):
    handler = signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup
    try:
        with pytest.raises(TerminatedError), terminable():
            terminate(number)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, handler)


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
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, handler)


def terminate(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
    time.sleep(1)

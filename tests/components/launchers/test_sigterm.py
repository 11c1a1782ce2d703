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


def test_a_signal_ends_the_block_in_code_that_makes_another_error_of_it():
    """As TensorFlow does, if it comes while one of its own errors is made."""

    def make_another() -> None:
        try:
            terminate()
        except TerminatedError as error:
            raise RuntimeError("error_already_set") from error

    with pytest.raises(TerminatedError), terminable():
        make_another()


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

import os
import signal
import sys
import time

import pytest

from tfx_distribute.components.launchers.sigterm import TerminatedError, terminable


def test_sigterm_ends_the_block():
    handler, hook = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with pytest.raises(TerminatedError), terminable():
        terminate()
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == (handler, hook)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)


class Terminates:
    def __del__(self):
        terminate()


def end_in_destructor() -> None:
    Terminates()
    time.sleep(5)


def test_sigterm_within_a_destructor_is_not_lost():
    with pytest.raises(TerminatedError), terminable():
        end_in_destructor()

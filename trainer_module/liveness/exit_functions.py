"""Runs the functions that a module registered with `atexit`, without a regular exit.

A regular exit also runs TensorFlow's own cleanup, which takes seconds, and in a forked
process the functions of the process that it is a fork of. So training processes end
with `os._exit`.
"""

import atexit
import contextlib
import os
import sys
import threading
import traceback
from typing import NoReturn

from tfx_distribute.trainer_module import timeouts


def forget() -> None:
    """Drops the functions registered so far, so that `end` does not call them."""
    atexit._clear()


def end(code: int) -> NoReturn:
    """Calls the functions registered since, the last one first, and ends this process.

    As in Python, an error of one is printed and does not keep the others from running.
    The process ends after ten seconds at the latest, and also if something fails here.
    """
    timer = threading.Timer(timeouts.EXIT_FUNCTIONS_SECONDS, _give_up, [code])
    timer.daemon = True
    try:
        timer.start()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        _exit(code)


def _give_up(code: int) -> NoReturn:
    print(
        f"functions of atexit took longer than {timeouts.EXIT_FUNCTIONS_SECONDS:g} s; this process ends without them",
        file=sys.stderr,
    )
    _exit(code)


def _exit(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)

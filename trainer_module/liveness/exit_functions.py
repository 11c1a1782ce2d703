"""Runs the functions that a module registered with `atexit`, without a regular exit.

A regular exit also runs TensorFlow's own cleanup, which takes seconds, and in a forked
process the functions of the process that it is a fork of. So training processes end
with `os._exit`:

    exit_functions.record()
    ...
    exit_functions.end(code)
"""

import atexit
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from tfx_distribute.trainer_module import timeouts

_functions: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []


def record() -> None:
    """Keeps the functions that are registered from now on, for `end`."""
    atexit.register = _register
    atexit.unregister = _unregister


def _register(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    _functions.append((function, args, kwargs))
    return function


def _unregister(function: Callable[..., Any], /) -> None:
    _functions[:] = [entry for entry in _functions if entry[0] != function]


def end(code: int) -> NoReturn:
    """Calls the recorded functions, the last one first, and ends this process.

    As in Python, an error of one is printed and does not keep the others from running.
    The process ends after ten seconds at the latest, and also if something fails here.
    """
    timer = threading.Timer(timeouts.EXIT_FUNCTIONS_SECONDS, _give_up, [code])
    timer.daemon = True
    try:
        timer.start()
        _call_all()
    except BaseException:
        traceback.print_exc()
    finally:
        _exit(code)


def _call_all() -> None:
    while _functions:
        function, args, kwargs = _functions.pop()
        try:
            function(*args, **kwargs)
        except BaseException:
            traceback.print_exc()


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

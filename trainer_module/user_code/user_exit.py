"""Describes an exit in user code, which fails a node whatever its code: only finished work counts as success."""

import contextlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from unittest import mock


class OsExit(SystemExit):
    """Raised in place of an `os._exit()`."""


def describe(error: SystemExit) -> str:
    """Returns what was called and where, such as `sys.exit(0) was called in /home/me/model.py, line 7`."""
    function = "os._exit" if isinstance(error, OsExit) else "sys.exit"
    called = f"{function}({'' if error.code is None else repr(error.code)}) was called"
    # Python's own exit() and quit() raise the error in a module of theirs, and `os._exit` is the function below.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).stem not in _NOT_USERS]
    return f"{called} in {frames[-1].filename}, line {frames[-1].lineno}" if frames else called


_NOT_USERS = ("_sitebuiltins", "user_exit")


@contextlib.contextmanager
def os_exit_raises() -> Iterator[None]:
    """Makes `os._exit()` raise `OsExit` within the block, in this process, so that it cannot end with code 0 unfinished.

    Forks of this process, such as those of `multiprocessing`, end as they like.
    """
    process, end = os.getpid(), os._exit

    def leave(status: int) -> NoReturn:
        if os.getpid() == process:
            raise OsExit(status)
        end(status)

    with mock.patch.object(os, "_exit", leave):
        yield

"""Treats an exit in user code as a failure, whatever its exit code.

Only finished work counts as success.
"""

import contextlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from unittest import mock


class OsExit(SystemExit):
    """Replaces a call of `os._exit()`."""


def describe(error: SystemExit) -> str:
    """Describes a call that exits and where it was made.

    For example `sys.exit(0) was called in /home/me/model.py, line 7`.
    """
    function = "os._exit" if isinstance(error, OsExit) else "sys.exit"
    call = f"{function}({'' if error.code is None else repr(error.code)}) was called"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name not in _NOT_USERS]
    return f"{call} in {frames[-1].filename}, line {frames[-1].lineno}" if frames else call


# Python's exit() and quit() raise the error in `_sitebuiltins`; `os_exit_raises` below
# replaces `os._exit`.
_NOT_USERS = ("_sitebuiltins.py", "<frozen _sitebuiltins>", "user_exit.py")


@contextlib.contextmanager
def os_exit_raises() -> Iterator[None]:
    """Makes `os._exit()` raise `OsExit` within the block.

    Unfinished work can then not end this process with exit code 0. Forks of it, such as
    those of `multiprocessing`, can still exit as they like.
    """
    process, original_exit = os.getpid(), os._exit

    def raise_or_exit(status: int) -> NoReturn:
        if os.getpid() == process:
            raise OsExit(status)
        original_exit(status)

    with mock.patch.object(os, "_exit", raise_or_exit):
        yield

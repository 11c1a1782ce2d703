"""Describes errors of user code. A `sys.exit()` is one, whatever its exit code.

Only finished work counts as success.
"""

import traceback
from pathlib import Path

# Python's exit() and quit() raise the error there.
_NOT_USERS = ("_sitebuiltins.py", "<frozen _sitebuiltins>")


def describe(error: BaseException) -> str:
    """Describes an error by its type and text; an exit by the call and its place.

    For example `sys.exit(0) was called in /home/me/model.py, line 7`.
    """
    if not isinstance(error, SystemExit):
        return f"{type(error).__name__}: {error}".strip()
    call = f"sys.exit({'' if error.code is None else repr(error.code)}) was called"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name not in _NOT_USERS]
    return f"{call} in {frames[-1].filename}, line {frames[-1].lineno}" if frames else call

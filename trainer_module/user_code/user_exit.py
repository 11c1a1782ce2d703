"""Treats `sys.exit()` in user code as a failure, whatever its exit code.

Only finished work counts as success.
"""

import traceback
from pathlib import Path

# Python's exit() and quit() raise the error there.
_NOT_USERS = ("_sitebuiltins.py", "<frozen _sitebuiltins>")


def describe(error: SystemExit) -> str:
    """Describes a call that exits and where it was made.

    For example `sys.exit(0) was called in /home/me/model.py, line 7`.
    """
    call = f"sys.exit({'' if error.code is None else repr(error.code)}) was called"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name not in _NOT_USERS]
    return f"{call} in {frames[-1].filename}, line {frames[-1].lineno}" if frames else call

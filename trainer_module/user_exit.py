"""Describes a `sys.exit()` in user code, which fails a node whatever its code: only finished work counts as success."""

import traceback
from pathlib import Path


def describe(error: SystemExit) -> str:
    """Returns what was called and where, such as `sys.exit(0) was called in /home/me/model.py, line 7`."""
    called = f"sys.exit({'' if error.code is None else repr(error.code)}) was called"
    # Python's own exit() and quit() raise the error in a module of theirs.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).stem != "_sitebuiltins"]
    return f"{called} in {frames[-1].filename}, line {frames[-1].lineno}" if frames else called

"""Reads the last lines of logs."""

import os
from pathlib import Path

LAST_LINES = 30  # a traceback of Python 3.13 has 20
_LAST_BYTES = 1 << 16  # in which to look for them


def last_lines(log: Path) -> list[str]:
    """Returns the last lines of a log of any size; [] if there is none."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        return file.read().decode(errors="replace").rstrip().splitlines()[-LAST_LINES:]

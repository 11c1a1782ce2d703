"""Drops output that cannot be written, for instance because the disk is full.

A `print` in the module or in a library must not end training then.

    best_effort_output.install()
"""

import io
import sys
from typing import Any


def install() -> None:
    """Replaces `sys.stdout` and `sys.stderr`: their errors are ignored from now on."""
    sys.stdout, sys.stderr = _make(1), _make(2)


def _make(descriptor: int) -> io.TextIOWrapper:
    raw = _BestEffort(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace", line_buffering=True)


class _BestEffort(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)

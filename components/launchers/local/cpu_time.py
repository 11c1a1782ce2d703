"""Reads how much CPU time a process of this machine has used."""

import os
from pathlib import Path


def seconds(pid: int) -> float:
    """Returns the CPU seconds of all threads of a process; 0 if they are unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()  # the name in parentheses may have spaces
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")

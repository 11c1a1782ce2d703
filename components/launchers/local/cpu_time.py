"""Reads the CPU time that processes of this machine have used."""

import os
from pathlib import Path


def seconds(pid: int) -> float:
    """Returns the CPU seconds of all threads of a process; 0 where the kernel does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()  # the name before it may contain spaces
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")

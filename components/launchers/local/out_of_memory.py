"""Finds out if the kernel killed a process because it ran out of memory.

The exit status cannot tell: it is the same for every SIGKILL.
"""

from pathlib import Path


def count_kills() -> int:
    """Returns how many processes the kernel has killed for lack of memory.

    It counts those of the whole machine, whether it or a container ran out. 0 if the
    kernel does not say.
    """
    try:
        words = Path("/proc/vmstat").read_text(encoding="utf-8").split()
    except OSError:
        return 0
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

"""Finds out if the kernel killed a process because it ran out of memory.

The exit status cannot tell: it is the same for every SIGKILL.
"""

from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MACHINE = Path("/proc/vmstat")


@dataclass(frozen=True)
class OomKills:
    """The kernel's count of processes that it killed for lack of memory.

    Attributes:
      file: File with the count of the process's cgroup, or else of the machine.
      count_at_start: The count when the process started.
    """

    file: Path
    count_at_start: int

    @staticmethod
    def of(pid: int) -> "OomKills":
        """Reads the count for a process that has just started."""
        file = next((file for file in _files(pid) if _read(file) is not None), _MACHINE)
        return OomKills(file, _read(file) or 0)

    def any_since(self) -> bool:
        """Returns True if the kernel has killed a process since the start."""
        return (_read(self.file) or 0) > self.count_at_start


def _files(pid: int) -> list[Path]:
    """Returns possible files with the count of a process's cgroup (version 1 or 2)."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    files = []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers == "":
            files.append(_CGROUPS / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            files.append(_CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
    return files


def _read(file: Path) -> int | None:
    """Returns the count in a file; None if it has none."""
    try:
        words = file.read_text(encoding="utf-8").split()
    except OSError:
        return None
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else None

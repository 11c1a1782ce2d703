"""Finds out if the kernel killed a process for want of memory; its exit status is that of any kill."""

from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MACHINE = Path("/proc/vmstat")


@dataclass(frozen=True)
class OomKills:
    """The kernel's count of such kills, where a process runs.

    Attributes:
      file: File of the count: that of the process's cgroup, or else of the machine.
      before: The count when the process started.
    """

    file: Path
    before: int

    @staticmethod
    def of(pid: int) -> "OomKills":
        """Reads the count for a process that has just started."""
        file = next((file for file in _files(pid) if _read(file) is not None), _MACHINE)
        return OomKills(file, _read(file) or 0)

    def any_since(self) -> bool:
        """Returns True if there were kills since then."""
        return (_read(self.file) or 0) > self.before


def _files(pid: int) -> list[Path]:
    """Returns the files that may have the count of a process's cgroup, of version 2 and of version 1."""
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
    try:
        words = file.read_text(encoding="utf-8").split()
    except OSError:
        return None
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else None

"""Describes this machine, as far as training depends on it."""

import math
import os
from pathlib import Path

from tfx_distribute.components.launchers.local import gpus

_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def list_gpus() -> list[str]:
    """Returns the GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    return gpus.list_visible()


def count_cores(cgroup_limit: Path = _CGROUP_LIMIT) -> int:
    """Returns the number of processor cores that this process may use, rounded up.

    Args:
      cgroup_limit: File with the limit of a container: microseconds of processor time
        or `max`, and in how many microseconds. Source:
        https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = cgroup_limit.read_text(encoding="ascii").split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no limit
        return cores

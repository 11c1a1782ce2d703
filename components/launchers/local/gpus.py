"""Divides the GPUs of this machine among training processes."""

import os
from pathlib import Path

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution


def list_visible() -> list[str]:
    """Returns this process's GPUs, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip() and gpu.strip() != "-1"]
    return [str(index) for index in range(len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))]


def assign(distribution: Distribution, index: int, processes: int, gpus: list[str]) -> list[str] | None:
    """Returns the GPUs of one of several processes, none of which share a GPU.

    `index`, from 0, and `processes` count those that use accelerators. GPUs are named
    as in CUDA_VISIBLE_DEVICES; None leaves the variable unchanged.

    Raises:
      ConfigurationError: There are not enough GPUs for all processes.
    """
    if distribution.accelerator_type == "cpu":
        return []
    if processes == 1 or (not gpus and distribution.accelerator_type == "auto"):
        return gpus or None
    per_process = distribution.accelerator_count
    if not per_process or per_process * processes > len(gpus):
        max_count = len(gpus) // processes
        instead = f"write accelerator_count={max_count}" if max_count else "write accelerator_type=cpu, or fewer workers"
        raise ConfigurationError(
            f"accelerator_count: {processes} processes with {per_process or 'all'} GPUs each, of this machine's "
            f"{len(gpus)}; {instead}"
        )
    return gpus[index * per_process : (index + 1) * per_process]

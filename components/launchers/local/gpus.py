"""Which GPUs of this machine each of several training processes gets."""

import os
from pathlib import Path

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution


def visible() -> list[str]:
    """The GPUs of this machine that this process was allotted, as CUDA_VISIBLE_DEVICES names them."""
    allotted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allotted is not None:
        return [gpu.strip() for gpu in allotted.split(",") if gpu.strip() and gpu.strip() != "-1"]
    return [str(index) for index in range(len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))]


def share(distribution: Distribution, index: int, processes: int, gpus: list[str]) -> list[str] | None:
    """The GPUs of one of several processes on this machine: processes do not share them.

    Args:
      distribution: What is asked for.
      index: Number of the process.
      processes: How many there are.
      gpus: The GPUs of this machine.

    Returns:
      Names for CUDA_VISIBLE_DEVICES; None to leave it as it is.

    Raises:
      ConfigurationError: There are not enough for all.
    """
    if distribution.accelerator_type == "cpu":
        return []
    if processes == 1 or (not gpus and distribution.accelerator_type == "auto"):
        return gpus or None
    each = distribution.accelerator_count
    if not each or each * processes > len(gpus):
        most = len(gpus) // processes
        instead = f"write accelerator_count={most}" if most else "write accelerator_type=cpu, or fewer workers"
        raise ConfigurationError(
            f"accelerator_count: {processes} processes with {each or 'all'} GPUs each, of this machine's "
            f"{len(gpus)}; {instead}"
        )
    return gpus[index * each : (index + 1) * each]

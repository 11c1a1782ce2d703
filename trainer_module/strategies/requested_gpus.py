"""Fails a process that was given GPUs, but in which TensorFlow sees fewer.

TensorFlow itself only logs a warning and uses the CPU. The usual reasons are an image
without CUDA's libraries, and a driver in a folder that LD_LIBRARY_PATH does not name.
"""

from collections.abc import Mapping

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS, ClusterTask, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def check(distribution: Distribution, task: ClusterTask, environment: Mapping[str, str]) -> None:
    """Raises ConfigurationError if a process does not see its container's GPUs.

    With `accelerator_type` cpu, they may be missing.
    """
    requested = int(environment.get(REQUESTED_GPUS, "0"))
    # A launcher that divides GPUs among processes sets this variable.
    visible = environment.get(_VISIBLE)
    uses_cpu = distribution.accelerator_type == "cpu"
    if not requested or uses_cpu or not uses_accelerators(distribution, task) or visible in ("", "-1"):
        return
    if visible is not None:
        requested = min(requested, len(visible.split(",")))
    if len(tf.config.list_physical_devices("GPU")) < requested:
        gpus = "a GPU" if requested == 1 else f"{requested} GPUs"
        raise ConfigurationError(f"accelerator: {task} was given {gpus}, but {describe_devices()}")


def describe_devices() -> str:
    """Says what TensorFlow sees in place of GPUs, and what to do."""
    devices = ", ".join(device.name.partition(":")[2] for device in tf.config.list_physical_devices())
    if not tf.test.is_built_with_cuda():
        reason = "is built without CUDA"
        remedy = "build the image with --build-arg ACCELERATOR=gpu, or install tensorflow[and-cuda] in your own"
    else:
        reason = "names the missing library in a warning above"
        remedy = (
            "check that LD_LIBRARY_PATH names the folder of the driver (libcuda.so.1; /usr/local/nvidia/lib64 on Google's "
            "machines), that CUDA's libraries are installed (--build-arg ACCELERATOR=gpu), and that `nvidia-smi` works here"
        )
    return f"TensorFlow sees only {devices}, and {reason}; {remedy}, or write accelerator_type=cpu to train on the CPU"

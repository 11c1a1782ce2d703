"""Fails a process that was given GPUs, but in which TensorFlow sees fewer.

TensorFlow itself only logs a warning and uses the CPU. The usual reasons are an image
without CUDA's libraries, and a driver in a folder that LD_LIBRARY_PATH does not name.
"""

import ctypes
import importlib.metadata
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS, ClusterTask, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution

DRIVER = "libcuda.so.1"
# Folders that a container gets the driver in. Source of the first, that of GKE and
# Vertex AI: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#cuda
DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class GpuReport:
    """What this process can use of GPUs.

    Attributes:
      devices: TensorFlow's names of the devices that it sees, such as `GPU:0`.
      built_with_cuda: True if this TensorFlow can use NVIDIA's GPUs at all.
      driver_error: Why the driver cannot be used; empty if it can.
      driver_folder: Folder with the driver if LD_LIBRARY_PATH does not name it;
        otherwise empty.
      missing_packages: Packages with CUDA's libraries that are not installed.
      library_path: LD_LIBRARY_PATH; None if it is not set.
    """

    devices: tuple[str, ...]
    built_with_cuda: bool
    driver_error: str
    driver_folder: str
    missing_packages: tuple[str, ...]
    library_path: str | None


def check(distribution: Distribution, task: ClusterTask, environment: Mapping[str, str]) -> None:
    """Checks that a process sees the GPUs that its container requested.

    Args:
      distribution: The pipeline's parameters. With `accelerator_type` cpu, GPUs may be
        missing.
      task: This process's role.
      environment: Its environment variables. `TFX_DISTRIBUTE_REQUESTED_GPUS` is the
        number of GPUs that the container requested.

    Raises:
      ConfigurationError: TensorFlow sees fewer. The message says what it sees, and what
        to do.
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
        raise ConfigurationError(f"accelerator: {task} was given {_gpus(requested)}, but {explain(make_report())}")


def make_report() -> GpuReport:
    """Looks for GPUs, their driver and CUDA's libraries."""
    library_path = os.environ.get("LD_LIBRARY_PATH")
    error = _find_driver_error()
    folders = [folder for folder in DRIVER_FOLDERS if os.path.exists(os.path.join(folder, DRIVER))]
    return GpuReport(
        devices=tuple(device.name.partition(":")[2] for device in tf.config.list_physical_devices()),
        built_with_cuda=tf.test.is_built_with_cuda(),
        driver_error=error,
        driver_folder=folders[0] if folders and "cannot be loaded" in error else "",
        missing_packages=_list_missing_packages(),
        library_path=library_path,
    )


def explain(report: GpuReport) -> str:
    """Says what TensorFlow sees, why, and what to do.

    Args:
      report: What a process can use of GPUs that are missing.
    """
    facts = [
        f"TensorFlow is built {'with' if report.built_with_cuda else 'without'} CUDA",
        report.driver_error or f"{DRIVER} works",
        f"LD_LIBRARY_PATH is {report.library_path or 'not set'}",
    ]
    if not report.built_with_cuda:
        remedy = "build the image with --build-arg ACCELERATOR=gpu, or install tensorflow[and-cuda] in your own"
    elif report.driver_folder:
        remedy = f"set LD_LIBRARY_PATH={report.driver_folder} in the image"
    elif report.driver_error:
        remedy = "check that the node has NVIDIA's driver and its device plugin gives the container a GPU"
    elif report.missing_packages:
        facts.append(f"{', '.join(report.missing_packages)} are not installed")
        remedy = "build the image with --build-arg ACCELERATOR=gpu, which installs CUDA's libraries"
    else:
        remedy = "look for TensorFlow's warnings about GPUs in this log"
    seen = f"TensorFlow sees only {', '.join(report.devices)} ({'; '.join(facts)})"
    return f"{seen}; {remedy}, or write accelerator_type=cpu to train on the CPU"


def _find_driver_error() -> str:
    """Returns why the driver cannot be used; empty if it can."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return f"{DRIVER}, the driver, cannot be loaded"
    code = driver.cuInit(0)
    if not code:
        return ""
    name = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(name))
    return f"{DRIVER}, the driver, answers {(name.value or b'an unknown error').decode()} ({code})"


def _list_missing_packages() -> tuple[str, ...]:
    """Returns the packages of TensorFlow's extra `and-cuda` that are not installed."""
    try:
        requirements = importlib.metadata.requires("tensorflow") or ()
    except importlib.metadata.PackageNotFoundError:  # another build, such as tensorflow-cpu
        return ()
    missing = []
    for requirement in requirements:
        name, _, condition = requirement.partition(";")
        if "and-cuda" not in condition:
            continue
        package = re.split(r"[^\w.-]", name.strip())[0]
        try:
            importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    return tuple(missing)


def _gpus(count: int) -> str:
    return "a GPU" if count == 1 else f"{count} GPUs"

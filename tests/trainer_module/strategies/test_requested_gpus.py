"""Tests what a process says that was given GPUs and sees none."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, REQUESTED_GPUS, ClusterTask
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.strategies import requested_gpus

without_gpus = pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="this machine has a GPU")
MISSING = requested_gpus.GpuReport(
    devices=("CPU:0",),
    built_with_cuda=True,
    driver_error="libcuda.so.1, the driver, cannot be loaded",
    driver_folder="/usr/local/nvidia/lib64",
    missing_packages=("nvidia-cudnn-cu12",),
    library_path=None,
)


@without_gpus
@pytest.mark.parametrize("distribution", [Distribution("one_device"), Distribution("mirrored"), Distribution("default")])
def test_a_process_that_was_given_gpus_does_not_train_on_the_cpu(distribution):
    with pytest.raises(ConfigurationError) as raised:
        requested_gpus.check(distribution, CHIEF_TASK, {REQUESTED_GPUS: "2"})
    message = str(raised.value)
    assert message.startswith("accelerator: chief was given 2 GPUs, but TensorFlow sees only CPU:0 (TensorFlow is built ")
    assert "LD_LIBRARY_PATH is" in message
    assert message.endswith("or write accelerator_type=cpu to train on the CPU")


@without_gpus
def test_gpus_that_a_launcher_divides_are_counted():
    with pytest.raises(ConfigurationError, match="chief was given 2 GPUs"):
        requested_gpus.check(Distribution("one_device"), CHIEF_TASK, {REQUESTED_GPUS: "4", "CUDA_VISIBLE_DEVICES": "0,1"})


@pytest.mark.parametrize(
    ("distribution", "task", "environment"),
    [
        (Distribution("one_device"), CHIEF_TASK, {}),
        (Distribution("one_device", accelerator_type="cpu"), CHIEF_TASK, {REQUESTED_GPUS: "1"}),
        (Distribution("mirrored", accelerator_type="cpu"), CHIEF_TASK, {REQUESTED_GPUS: "1"}),
        (Distribution("parameter_server", num_workers=2), CHIEF_TASK, {REQUESTED_GPUS: "1"}),
        (Distribution("parameter_server", num_workers=2), ClusterTask("ps", 0), {REQUESTED_GPUS: "1"}),
        (Distribution("one_device"), CHIEF_TASK, {REQUESTED_GPUS: "1", "CUDA_VISIBLE_DEVICES": ""}),
    ],
    ids=["none were given", "the CPU is asked for", "CPUs are named", "coordinator", "parameter server", "hidden from it"],
)
def test_a_process_that_may_use_the_cpu(distribution, task, environment):
    requested_gpus.check(distribution, task, environment)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, "set LD_LIBRARY_PATH=/usr/local/nvidia/lib64 in the image"),
        ({"built_with_cuda": False}, "build the image with --build-arg ACCELERATOR=gpu"),
        ({"driver_folder": ""}, "check that the node has NVIDIA's driver"),
        (
            {"driver_folder": "", "driver_error": ""},
            "nvidia-cudnn-cu12 are not installed); build the image with --build-arg ",
        ),
        ({"driver_folder": "", "driver_error": "", "missing_packages": ()}, "look for TensorFlow's warnings"),
    ],
)
def test_the_remedy_fits_what_is_missing(changes, remedy):
    assert remedy in requested_gpus.explain(replace(MISSING, **changes))


@without_gpus
def test_a_driver_whose_folder_is_not_named(tmp_path, monkeypatch):
    (tmp_path / requested_gpus.DRIVER).write_bytes(b"")
    monkeypatch.setattr(requested_gpus, "DRIVER_FOLDERS", (str(tmp_path),))
    assert requested_gpus.make_report().driver_folder == str(tmp_path)


@without_gpus
def test_a_driver_that_refuses(tmp_path):
    """A library with the driver's two functions, as CUDA's header declares them."""
    source = tmp_path / "driver.c"
    source.write_text(
        'int cuInit(unsigned f){return 100;}int cuGetErrorName(int c,const char**n){*n="CUDA_ERROR_X";return 0;}'
    )
    compiler = shutil.which("cc")
    assert compiler, "installing compiles, so that there is one"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / requested_gpus.DRIVER, source], check=True)
    code = "from tfx_distribute.trainer_module.strategies import requested_gpus; print(requested_gpus.make_report())"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=environment, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    assert "answers CUDA_ERROR_X (100)" in done.stdout

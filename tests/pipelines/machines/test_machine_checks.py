"""Tests warnings about the machine of each training process."""

import pytest

from tfx_distribute.pipelines.machines import machine_checks
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.job.training_job import Distribution


@pytest.mark.parametrize(
    ("distribution", "used"),
    [
        (Distribution("one_device"), "1"),
        (Distribution("default"), "1"),
        (Distribution("parameter_server", num_workers=2), "1"),
        (Distribution("mirrored", accelerator_count=1), "1"),
        (Distribution("model_parallel", mesh="1x2"), "2"),
        (Distribution("mirrored", accelerator_type="cpu"), "none"),
    ],
)
def test_gpus_that_no_strategy_uses(distribution, used):
    machine = MachineSpec(accelerator="nvidia-l4", accelerator_count=4)
    (warning,) = machine_checks.warn_of_idle_devices(machine, distribution)
    assert warning.startswith("resources.Trainer: a machine has 4 nvidia-l4, and a training process under strategy ")
    assert f"{distribution.strategy} uses {used} of them; " in warning


@pytest.mark.parametrize(
    ("machine", "distribution"),
    [
        (MachineSpec(), Distribution("one_device")),
        (MachineSpec(accelerator="nvidia-l4"), Distribution("one_device")),
        (MachineSpec(accelerator="nvidia-l4", accelerator_count=4), Distribution("mirrored")),
        (MachineSpec(accelerator="nvidia-l4", accelerator_count=4), Distribution("mirrored", accelerator_count=4)),
        (MachineSpec(accelerator="tpu-v5-lite-podslice", topology="2x2"), Distribution("tpu")),
        (
            MachineSpec(accelerator="nvidia.com/gpu", accelerator_count=2),
            Distribution("multi_worker_mirrored", num_workers=2),
        ),
    ],
)
def test_machines_that_are_used_whole(machine, distribution):
    assert machine_checks.warn_of_idle_devices(machine, distribution) == []

"""Tests warnings about the machine of each training process."""

import pytest

from tfx_distribute.pipelines.machines import machine_checks
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.job.training_job import Distribution


@pytest.mark.parametrize(
    ("distribution", "end"),
    [
        (Distribution("one_device"), "uses 1 of them; write a strategy that uses all of them, such as mirrored or "),
        (Distribution("default"), "under strategy default uses 1 of them; "),
        (Distribution("parameter_server", num_workers=2), "under strategy parameter_server uses 1 of them; "),
        (Distribution("mirrored", accelerator_count=1), "uses 1 of them; leave out what says how many, or ask for fewer"),
        (Distribution("model_parallel", mesh="1x2"), "uses 2 of them; leave out"),
        (Distribution("mirrored", accelerator_type="cpu"), "uses none of them; leave accelerator_type or the accelerator"),
    ],
)
def test_gpus_that_no_strategy_uses(distribution, end):
    machine = MachineSpec(accelerator="nvidia-l4", accelerator_count=4)
    (warning,) = machine_checks.warn_of_idle_devices(machine, distribution)
    assert warning.startswith("resources.Trainer: a machine has 4 nvidia-l4, and a training process under strategy ")
    assert end in warning


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

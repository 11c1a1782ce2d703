"""Checks the machines that train. Imports no TensorFlow."""

from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import TRAINER, MachineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution


def check_trainer(machine: MachineSpec, distribution: Distribution) -> None:
    """Checks that a machine has the kind and number of devices that training uses.

    The platform has to have the machine, and `distribution` the name of a strategy. The
    message of the ConfigurationError begins with the setting's name.
    """
    devices = accelerators.count_devices(machine)
    if accelerators.is_tpu(machine) != (distribution.strategy == "tpu"):
        raise ConfigurationError(
            f"resources.Trainer.accelerator: strategy {distribution.strategy} does not train on "
            f"{machine.accelerator or 'a CPU'}; write strategy: tpu with a TPU, and with nothing else"
        )
    requested = distribution.accelerator_count
    if distribution.accelerator_type == "gpu" and not devices:
        raise ConfigurationError(
            "resources.Trainer.accelerator: is missing, and accelerator_type is gpu; write the kind of GPU, "
            "such as nvidia-l4"
        )
    if devices and requested > devices:
        raise ConfigurationError(
            f"accelerator_count: {requested} devices per training process, but a machine has {devices} "
            f"(resources.Trainer); write accelerator_count: {devices} or 0, or "
            f"resources.Trainer.accelerator_count: {requested}"
        )


def warn_of_idle_devices(machine: MachineSpec, distribution: Distribution) -> list[str]:
    """Warns of a machine with more devices than a training process uses.

    Returns one warning, or none, of a machine that `check_trainer` accepts.
    """
    devices = accelerators.count_devices(machine)
    used = strategy_table.devices_per_process(distribution)
    if distribution.accelerator_type == "cpu":
        used = 0
    if used is None or used >= devices:
        return []
    return [
        f"resources.{TRAINER}: a machine has {devices} {machine.accelerator}, and a training process under strategy "
        f"{distribution.strategy} uses {used or 'none'} of them; ask for fewer, or have it use all "
        "with another strategy, accelerator_type or accelerator_count"
    ]

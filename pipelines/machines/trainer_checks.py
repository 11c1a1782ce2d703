"""Whether the Trainer's machine goes with what it is asked to do. Imports no TensorFlow."""

from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution


def check(node: MachineSpec, distribution: Distribution, platform: accelerators.Platform) -> None:
    """Refuses machines whose devices the strategy does not train on, or that have fewer than it is to use.

    Args:
      node: The machine of each training process.
      distribution: How the work is spread.
      platform: Where the machine is.

    Raises:
      ConfigurationError: With a message that begins with the setting's name.
    """
    accelerators.check(node.accelerator, node.accelerator_count, node.topology, platform, node.spot)
    devices = accelerators.count_devices(node.accelerator, node.accelerator_count, node.topology) if node.accelerator else 0
    if is_tpu(node) != (distribution.strategy == "tpu"):
        raise ConfigurationError(
            f"resources.Trainer.accelerator: strategy {distribution.strategy} does not train on "
            f"{node.accelerator or 'a CPU'}; write strategy: tpu with a TPU, and with nothing else"
        )
    if is_tpu(node) and accelerators.count_hosts(str(node.accelerator), node.accelerator_count, node.topology) > 1:
        raise ConfigurationError(
            f"resources.Trainer.topology: {node.topology} is several machines, and the strategy tpu trains on one here; "
            "write a smaller topology"
        )
    wanted = distribution.accelerator_count
    if distribution.accelerator_type == "gpu" and not devices:
        raise ConfigurationError(
            "resources.Trainer.accelerator: is missing, and accelerator_type is gpu; write the kind of GPU, "
            "such as nvidia-l4"
        )
    if devices and wanted > devices:
        raise ConfigurationError(
            f"accelerator_count: {wanted} devices per training process, but a machine has {devices} "
            f"(resources.Trainer); write accelerator_count: {devices} or 0, or resources.Trainer.accelerator_count: {wanted}"
        )


def is_tpu(node: MachineSpec) -> bool:
    """Whether a machine has a TPU."""
    return node.accelerator is not None and accelerators.get_resource_name(node.accelerator) == accelerators.TPU_RESOURCE

"""What a pipeline file says of machines -> what Vertex AI is told. Pure.

A step of a pipeline is given CPU, memory and accelerators, and Vertex AI finds a machine; a worker pool names its machine.
"""

from typing import Any

from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec, number
from tfx_distribute.trainer_module.errors import ConfigurationError

DEFAULT_MACHINE = "n1-standard-4"  # as in the SDK
# https://cloud.google.com/compute/docs/general-purpose-machines#n2_series: GiB of memory for each CPU, and CPUs.
_SERIES = {"n2-standard": 4.0, "n2-highmem": 8.0}
# https://cloud.google.com/compute/docs/gpus#gpu-models
_WITH_ACCELERATORS = {"n1-standard": 3.75, "n1-highmem": 6.5, "n1-highcpu": 0.9, "g2-standard": 4.0}
_SIZES = (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)


def machine_spec(node: MachineSpec, reservation: str | None = None) -> dict[str, Any]:
    """A node as the MachineSpec of a worker pool.

    Args:
      node: The node.
      reservation: Compute Engine reservation that it is taken from; None for any machine.

    Raises:
      ConfigurationError: Vertex AI has no such machine.
    """
    accelerators.check(node.accelerator, node.accelerator_count, node.topology, "vertex", node.spot)
    if node.accelerator:
        machine_type = node.machine_type or _with_accelerator(node.accelerator, node)
        machine = accelerators.make_machine_spec(node.accelerator, node.accelerator_count, node.topology, machine_type)
    else:
        machine = {"machine_type": node.machine_type or _machine_type(node)}
    if reservation is None:
        return dict(machine)
    affinity = {
        "reservation_affinity_type": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [reservation],
    }
    return {**machine, "reservation_affinity": affinity}


def resource_spec(node: MachineSpec) -> dict[str, Any]:
    """A node as the resources of a step.

    Args:
      node: The node; its GPUs are some that Vertex AI has.
    """
    spec: dict[str, Any] = {}
    if node.cpu:
        spec["cpuLimit"] = float(number(node.cpu))
    if node.memory:
        spec["memoryLimit"] = float(number(node.memory) / 10**9)
    if node.accelerator:
        devices = accelerators.count_devices(node.accelerator, node.accelerator_count)
        spec["accelerator"] = {"type": accelerators.ACCELERATORS[node.accelerator].vertex_type, "count": str(devices)}
    return spec


def _with_accelerator(accelerator: str, node: MachineSpec) -> str:
    """The smallest machine with that accelerator, CPU and memory, as far as its name tells them: many are the only one."""
    able = accelerators.find_machine_types(accelerator, node.accelerator_count, node.topology)
    for name in able:
        series, _, size = name.rpartition("-")
        if not size.isdigit() or _has(node, int(size), _WITH_ACCELERATORS.get(series)):
            return name
    raise ConfigurationError(
        f"machine_type: no machine with {accelerator} has {node.cpu or 'any'} CPUs and {node.memory or 'any'} of memory; "
        f"there are {', '.join(able)}"
    )


def _machine_type(node: MachineSpec) -> str:
    """The smallest machine with that CPU and memory."""
    if not (node.cpu or node.memory):
        return DEFAULT_MACHINE
    for size in _SIZES:
        for series, per_cpu in _SERIES.items():
            if _has(node, size, per_cpu) and (series, size) != ("n2-highmem", 128):
                return f"{series}-{size}"
    raise ConfigurationError(
        f"machine_type: no machine of the N2 series has {node.cpu or 'any'} CPUs and {node.memory or 'any'} of memory; "
        "write which machine, such as m1-megamem-96"
    )


def _has(node: MachineSpec, cpus: int, gigabytes_per_cpu: float | None) -> bool:
    """Whether a machine has the CPU and memory of a node; None for as much memory as it takes."""
    memory = float(number(node.memory or "0") / 2**30)
    return cpus >= number(node.cpu or "0") and (gigabytes_per_cpu is None or cpus * gigabytes_per_cpu >= memory)

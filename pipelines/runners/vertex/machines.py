"""Converts machines of a pipeline file for Vertex AI. Pure.

A step of a pipeline requests CPU, memory and accelerators, and Vertex AI chooses a
machine type; a worker pool names its machine type.
"""

from typing import Any

from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec, number
from tfx_distribute.trainer_module.errors import ConfigurationError

DEFAULT_MACHINE = "n1-standard-4"  # as in the SDK
# GiB of memory per CPU, and numbers of CPUs:
# https://cloud.google.com/compute/docs/general-purpose-machines#n2_series
_SERIES = {"n2-standard": 4.0, "n2-highmem": 8.0}
_SIZES = (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)
# GiB of memory per CPU: https://cloud.google.com/compute/docs/gpus#gpu-models
_ACCELERATOR_SERIES = {"n1-standard": 3.75, "n1-highmem": 6.5, "n1-highcpu": 0.9, "g2-standard": 4.0}


def make_machine_spec(machine: MachineSpec, reservation: str | None = None) -> dict[str, Any]:
    """Returns Vertex AI's MachineSpec of a worker pool.

    Args:
      machine: The machine in the pipeline file.
      reservation: Compute Engine reservation that the machine is taken from; None for
        no reservation.

    Raises:
      ConfigurationError: Vertex AI has no such machine.
    """
    accelerators.check(machine.accelerator, machine.accelerator_count, machine.topology, "vertex", machine.spot)
    if machine.accelerator:
        machine_type = machine.machine_type or _find_accelerator_machine_type(machine.accelerator, machine)
        spec = accelerators.make_machine_spec(machine.accelerator, machine.accelerator_count, machine.topology, machine_type)
    else:
        spec = {"machine_type": machine.machine_type or _find_machine_type(machine)}
    if reservation is None:
        return dict(spec)
    affinity = {
        "reservation_affinity_type": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [reservation],
    }
    return {**spec, "reservation_affinity": affinity}


def make_resource_spec(machine: MachineSpec) -> dict[str, Any]:
    """Returns the resources of a step.

    Args:
      machine: The machine in the pipeline file; Vertex AI has its accelerator, a GPU.
    """
    spec: dict[str, Any] = {}
    if machine.cpu:
        spec["cpuLimit"] = float(number(machine.cpu))
    if machine.memory:
        spec["memoryLimit"] = float(number(machine.memory) / 10**9)
    if machine.accelerator:
        devices = accelerators.count_devices(machine.accelerator, machine.accelerator_count)
        spec["accelerator"] = {"type": accelerators.ACCELERATORS[machine.accelerator].vertex_type, "count": str(devices)}
    return spec


def _find_accelerator_machine_type(accelerator: str, machine: MachineSpec) -> str:
    """Returns the smallest machine type with that accelerator, CPU and memory.

    CPU and memory are checked if the machine type's name tells them; the other machine
    types are usually the only one with the accelerator.
    """
    types = accelerators.find_machine_types(accelerator, machine.accelerator_count, machine.topology)
    for name in types:
        series, _, size = name.rpartition("-")
        if not size.isdigit() or _is_enough(machine, int(size), _ACCELERATOR_SERIES.get(series)):
            return name
    raise ConfigurationError(
        f"machine_type: no machine with {accelerator} has {machine.cpu or 'any'} CPUs and "
        f"{machine.memory or 'any'} of memory; there are {', '.join(types)}"
    )


def _find_machine_type(machine: MachineSpec) -> str:
    """Returns the smallest machine type with that CPU and memory."""
    if not (machine.cpu or machine.memory):
        return DEFAULT_MACHINE
    for size in _SIZES:
        for series, gigabytes_per_cpu in _SERIES.items():
            if _is_enough(machine, size, gigabytes_per_cpu) and (series, size) != ("n2-highmem", 128):
                return f"{series}-{size}"
    raise ConfigurationError(
        f"machine_type: no machine of the N2 series has {machine.cpu or 'any'} CPUs and "
        f"{machine.memory or 'any'} of memory; write which machine, such as m1-megamem-96"
    )


def _is_enough(machine: MachineSpec, cpus: int, gigabytes_per_cpu: float | None) -> bool:
    """Returns True if CPUs and memory suffice for a machine; None skips the memory."""
    gigabytes = float(number(machine.memory or "0") / 2**30)
    return cpus >= number(machine.cpu or "0") and (gigabytes_per_cpu is None or cpus * gigabytes_per_cpu >= gigabytes)

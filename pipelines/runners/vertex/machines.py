"""Converts machines of a pipeline file for Vertex AI. Pure.

A step of a pipeline requests CPU, memory and accelerators, and Vertex AI chooses a
machine type; a worker pool names its machine type.
"""

from collections.abc import Mapping
from typing import Any

from tfx_distribute.pipelines.machines import accelerators, machine_types
from tfx_distribute.pipelines.spec.machines import MachineSpec, number
from tfx_distribute.trainer_module.errors import ConfigurationError

DEFAULT_MACHINE = "n1-standard-4"  # as in the SDK
# With a GPU its log may stop, for lack of CPUs: it is taken if it is named. Source:
# https://cloud.google.com/vertex-ai/docs/training/configure-compute#gpus
_SLOW_WITH_GPUS = "n1-highmem-2"


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
    machine_type = find_machine_type(machine)
    if machine.accelerator:
        spec = accelerators.make_machine_spec(machine.accelerator, machine.accelerator_count, machine.topology, machine_type)
    else:
        spec = {"machine_type": machine_type}
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

    Vertex AI chooses a machine that has them, on which its agents run too.

    Args:
      machine: The machine in the pipeline file; Vertex AI has its accelerator, a GPU.
    """
    spec: dict[str, Any] = {}
    if machine.cpu:
        spec["cpuLimit"] = _cpus(machine)
    if machine.memory:
        spec["memoryLimit"] = round(machine_types.add_agents(_gibibytes(machine)) * 2**30 / 1e9, 2)
    if machine.accelerator:
        devices = accelerators.count_devices(machine.accelerator, machine.accelerator_count)
        spec["accelerator"] = {"type": accelerators.ACCELERATORS[machine.accelerator].vertex_type, "count": str(devices)}
    return spec


def describe_excess(spec: Mapping[str, Any]) -> str:
    """Returns why a step cannot have some resources; "" if it can.

    Args:
      spec: The resources, as `make_resource_spec` returns them.
    """
    cpus, gigabytes = spec.get("cpuLimit", 0), spec.get("memoryLimit", 0)
    if cpus > machine_types.MAX_STEP_CPUS:
        return f"a step has at most {machine_types.MAX_STEP_CPUS} CPUs, not {cpus:g}"
    if gigabytes > machine_types.MAX_STEP_GB:
        return f"a step's machine has at most {machine_types.MAX_STEP_GB} GB of memory, not {gigabytes:g}"
    return ""


def find_machine_type(machine: MachineSpec) -> str:
    """Returns the machine type of a machine: the given one, or the smallest.

    Args:
      machine: The machine in the pipeline file; Vertex AI has its accelerator.

    Raises:
      ConfigurationError: There is none with its CPUs and memory.
    """
    if machine.machine_type:
        _check_machine_type(machine)
        return machine.machine_type
    if machine.accelerator:
        able = accelerators.find_machine_types(machine.accelerator, machine.accelerator_count, machine.topology)
        names = tuple(name for name in able if name != _SLOW_WITH_GPUS)
        which, instead = f"machine with {machine.accelerator}", f"there are {', '.join(names)}"
    else:
        names = machine_types.N2
        which, instead = "machine of the N2 series", "write which machine, such as n1-highmem-96 or m1-megamem-96"
    if not (machine.cpu or machine.memory):
        return names[0] if machine.accelerator else DEFAULT_MACHINE
    found = machine_types.find_smallest(names, _cpus(machine), _gibibytes(machine))
    if found is None:
        raise ConfigurationError(
            f"machine_type: no {which} has {machine.cpu or 'any'} CPUs and {machine.memory or 'any'} of memory, besides "
            f"that of Vertex AI's agents; {instead}"
        )
    return found.name


def _check_machine_type(machine: MachineSpec) -> None:
    """Raises ConfigurationError for a machine type that the rest does not go with."""
    row = machine_types.find(machine.machine_type)
    if row.accelerator and not machine.accelerator:
        raise ConfigurationError(
            f"machine_type: {row.name} comes with {row.accelerator}, and accelerator is missing; write accelerator: "
            f"{row.accelerator}, or another machine_type"
        )
    if not row.suffices(_cpus(machine), _gibibytes(machine)):
        raise ConfigurationError(
            f"machine_type: {row.name} has {row.cpus} CPUs and {row.memory_gib:g} GiB of memory, of which Vertex AI's "
            f"agents leave {row.usable_gib:.1f}, and {machine.cpu or 'any'} CPUs and {machine.memory or 'any'} of memory "
            "are asked for; write a larger machine_type, or leave cpu and memory out"
        )


def _cpus(machine: MachineSpec) -> float:
    return float(number(machine.cpu or "0"))


def _gibibytes(machine: MachineSpec) -> float:
    return float(number(machine.memory or "0") / 2**30)

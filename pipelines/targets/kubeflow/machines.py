"""Converts machines of a pipeline file to the terms of Kubernetes. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.liveness import termination

Document = dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """A `MachineSpec` in the terms of Kubernetes.

    Attributes:
      shared_memory: `emptyDir` of `/dev/shm`; None for the container's default.
    """

    limits: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: list[Document]
    shared_memory: Document | None

    @property
    def grace(self) -> dict[str, str]:
        """Environment variable with the time to end in; empty for the usual time."""
        is_spot = self.node_selector.get(accelerators.SPOT_LABEL) == "true"
        return {termination.GRACE: str(timeouts.SPOT_GRACE_SECONDS)} if is_spot else {}


def make_machine(machine: MachineSpec, platform: accelerators.Cluster) -> Machine:
    """Converts a machine of a pipeline file to the terms of Kubernetes.

    Raises a ConfigurationError if the platform has no such accelerator, topology or
    spot machine.
    """
    accelerators.check(machine.accelerator, machine.accelerator_count, machine.topology, platform, machine.spot)
    limits = keep_set(cpu=machine.cpu, memory=machine.memory)
    if machine.accelerator:
        count = accelerators.count_devices(machine.accelerator, machine.accelerator_count, machine.topology)
        limits[accelerators.get_resource_name(machine.accelerator)] = str(count)
    has_shared_memory = machine.accelerator or machine.shared_memory is not None
    tolerations = accelerators.make_tolerations(machine.accelerator, machine.spot)
    return Machine(
        limits=limits,
        node_selector={
            **accelerators.make_node_selector(machine.accelerator, machine.topology, machine.spot),
            **machine.node_selector,
        },
        tolerations=[*map(dict, tolerations), *(keep_set(**each.model_dump()) for each in machine.tolerations)],
        shared_memory=keep_set(medium="Memory", sizeLimit=machine.shared_memory) if has_shared_memory else None,
    )


def keep_set(**values: Any) -> Document:
    """Returns the values that are neither empty nor None."""
    return {name: value for name, value in values.items() if value}

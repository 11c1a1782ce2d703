"""Converts machines of a pipeline file to the terms of Kubernetes. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.liveness import termination

Document = dict[str, Any]

SHARED_MEMORY = "dshm"  # name of the volume


@dataclass(frozen=True)
class Machine:
    """A `MachineSpec` in the terms of Kubernetes.

    Attributes:
      shared_memory: Size of `/dev/shm`, empty for no limit; None for the container's
        default.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    shared_memory: str | None = None

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
    limits = {name: value for name, value in (("cpu", machine.cpu), ("memory", machine.memory)) if value}
    user_tolerations = [
        {name: value for name, value in toleration.model_dump().items() if value} for toleration in machine.tolerations
    ]
    shared_memory = machine.shared_memory
    accelerators.check(machine.accelerator, machine.accelerator_count, machine.topology, platform, machine.spot)
    if machine.accelerator:
        count = accelerators.count_devices(machine.accelerator, machine.accelerator_count, machine.topology)
        limits[accelerators.get_resource_name(machine.accelerator)] = str(count)
        shared_memory = shared_memory or ""
    selector = accelerators.make_node_selector(machine.accelerator, machine.topology, machine.spot)
    return Machine(
        limits=limits,
        node_selector={**selector, **machine.node_selector},
        tolerations=(*accelerators.make_tolerations(machine.accelerator, machine.spot), *user_tolerations),
        shared_memory=shared_memory,
    )

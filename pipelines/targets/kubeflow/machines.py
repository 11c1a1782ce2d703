"""Converts machines of a pipeline file to the terms of Kubernetes. Pure functions."""

from typing import Any

from tfx_distribute.components import timeouts
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.liveness import preemption

Document = dict[str, Any]

SHARED_MEMORY = "/dev/shm"  # noqa: S108
_GPU, _TPU, _SPOT = "nvidia.com/gpu", "google.com/tpu", "cloud.google.com/gke-spot"


def make_limits(machine: MachineSpec) -> dict[str, str]:
    """Returns the limits of a container's resources."""
    limits: dict[str, str] = keep_set(cpu=machine.cpu, memory=machine.memory)
    if machine.accelerator:
        google = _TPU if accelerators.is_tpu(machine) else _GPU
        is_resource = machine.accelerator.startswith(accelerators.RESOURCE_PREFIX)
        limits[machine.accelerator if is_resource else google] = str(accelerators.count_devices(machine))
    return limits


def make_node_selector(machine: MachineSpec) -> dict[str, str]:
    """Returns the labels that a node must have: those of GKE, and the user's.

    Other clusters have none in common: a resource may be on any node that has it.
    """
    labels = {}
    if accelerators.is_tpu(machine):
        labels["cloud.google.com/gke-tpu-accelerator"] = machine.accelerator or ""
        labels["cloud.google.com/gke-tpu-topology"] = machine.topology
    elif machine.accelerator in accelerators.GPUS:
        labels["cloud.google.com/gke-accelerator"] = machine.accelerator
    if machine.spot:
        labels[_SPOT] = "true"
    return {**labels, **machine.node_selector}


def make_tolerations(machine: MachineSpec) -> list[dict[str, str]]:
    """Returns tolerations of the taints that reserve such nodes, and the user's."""
    tolerations = []
    if machine.accelerator:
        taint = _TPU if accelerators.is_tpu(machine) else _GPU
        tolerations.append({"key": taint, "operator": "Exists", "effect": "NoSchedule"})
    if machine.spot:
        tolerations.append({"key": _SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    return [*tolerations, *(keep_set(**each.model_dump()) for each in machine.tolerations)]


def make_shared_memory(machine: MachineSpec) -> Document | None:
    """Returns the volume of `/dev/shm`; None for the container's default."""
    if machine.shared_memory is None and not machine.accelerator:
        return None
    return keep_set(medium="Memory", sizeLimit=machine.shared_memory)


def make_grace(machine: MachineSpec) -> dict[str, str]:
    """Returns the variable with the time to end in; empty for the usual time."""
    is_spot = make_node_selector(machine).get(_SPOT) == "true"
    return {preemption.GRACE: str(timeouts.SPOT_GRACE_SECONDS)} if is_spot else {}


def keep_set(**values: Any) -> Document:
    """Returns the values that are neither empty nor None."""
    return {name: value for name, value in values.items() if value}

"""Lists accelerators, and checks the machines of a pipeline file. No TensorFlow.

A pipeline file names an accelerator by the value of GKE's node label. On other clusters
it names the Kubernetes resource, without a product.

`check_all` validates the user's machines; the other functions take those that it
accepts. Messages of errors begin with the name of the setting.
"""

import math
from collections.abc import Mapping
from typing import Literal

from tfx_distribute.pipelines.spec.machines import TRAINER, MachineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution

Platform = Literal["kubernetes", "gke", "vertex"]
"""Any cluster with NVIDIA's device plugin; Google Kubernetes Engine; Vertex AI."""

RESOURCE_PREFIX = "nvidia.com/"
"""Prefix of the names of resources that are GPUs or parts of GPUs."""

# Sources, read in 2026:
# - gke: https://cloud.google.com/kubernetes-engine/docs/concepts/gpus and
#   https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus. Left out: what
#   docs/accelerators.md says, devices of older TPUs made for serving, and slices of
#   TPUs with several machines, on which nothing here trains.
# - vertex: https://cloud.google.com/vertex-ai/docs/training/configure-compute and
#   https://cloud.google.com/vertex-ai/docs/reference/rest/v1/MachineSpec. Left out:
#   TPUs v2 and v3, whose cores it counts.

# Machines of the N1 series, which GPUs are attached to; each GPU allows that many CPUs.
_N1 = {count: f"n1-standard-{8 * count}" for count in (1, 2, 4)}
GPUS: dict[str, dict[int, str]] = {
    "nvidia-tesla-p4": _N1,
    "nvidia-tesla-p100": _N1,
    "nvidia-tesla-v100": {**_N1, 8: "n1-standard-64"},
    "nvidia-tesla-t4": _N1,
    "nvidia-l4": {count: f"g2-standard-{12 * count}" for count in (1, 2, 4, 8)},
    "nvidia-tesla-a100": {
        **{count: f"a2-highgpu-{count}g" for count in (1, 2, 4, 8)},
        16: "a2-megagpu-16g",
    },
    "nvidia-a100-80gb": {count: f"a2-ultragpu-{count}g" for count in (1, 2, 4, 8)},
    "nvidia-h100-80gb": {count: f"a3-highgpu-{count}g" for count in (1, 2, 4, 8)},
    # The same GPU, in a Google machine with a faster network.
    "nvidia-h100-mega-80gb": {8: "a3-megagpu-8g"},
    "nvidia-h200-141gb": {8: "a3-ultragpu-8g"},
}
"""GPU -> how many one of Google's machines has -> its usual machine type."""
TPUS: dict[str, dict[str, str]] = {
    "tpu-v3-device": {"2x2": ""},
    "tpu-v4-podslice": {"2x2x1": ""},
    "tpu-v5-lite-podslice": {
        "1x1": "ct5lp-hightpu-1t",
        "2x2": "ct5lp-hightpu-4t",
        "2x4": "ct5lp-hightpu-8t",
    },
    "tpu-v5p-slice": {"2x2x1": ""},
}
"""TPU -> topology of one machine -> machine type of Vertex AI; empty if it has none."""


def list_names(platform: Platform) -> list[str]:
    """Returns the accelerators that one of Google's platforms has."""
    tpus = [name for name, topologies in TPUS.items() if platform == "gke" or all(topologies.values())]
    return [*GPUS, *tpus]


def check_all(resources: Mapping[str, MachineSpec], platform: Platform) -> None:
    """Checks that a platform has all machines of a pipeline file."""
    for name, machine in resources.items():
        if problem := _find_problem(machine, platform):
            raise ConfigurationError(f"resources.{name}.{problem}")


def check_trainer(machine: MachineSpec, distribution: Distribution) -> None:
    """Checks that a machine has the kind and number of devices that training uses."""
    devices = count_devices(machine)
    if is_tpu(machine) != (distribution.strategy == "tpu"):
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
    """Warns, at most once, of a machine with more devices than a process uses."""
    devices = count_devices(machine)
    used = 0 if distribution.accelerator_type == "cpu" else strategy_table.devices_per_process(distribution)
    if used is None or used >= devices:
        return []
    return [
        f"resources.{TRAINER}: a machine has {devices} {machine.accelerator}, and a training process under strategy "
        f"{distribution.strategy} uses {used or 'none'} of them; ask for fewer, or have it use all "
        "with another strategy, accelerator_type or accelerator_count"
    ]


def is_tpu(machine: MachineSpec) -> bool:
    """Returns True if a machine has a TPU."""
    return machine.accelerator in TPUS


def count_devices(machine: MachineSpec) -> int:
    """Returns how many accelerators a machine has: the limit of its container."""
    if is_tpu(machine):
        return _count_chips(machine.topology)
    return (machine.accelerator_count or 1) if machine.accelerator else 0


def _find_problem(machine: MachineSpec, platform: Platform) -> str:
    """Returns the problem of a machine on a platform, and what to write; or ""."""
    name, count = machine.accelerator, machine.accelerator_count
    if machine.spot and platform == "kubernetes":
        return (
            "spot: kubernetes has no label for spot machines that all clusters share; leave spot out, and write a "
            "node_selector and tolerations of your own"
        )
    if machine.topology and not is_tpu(machine):
        return f"topology: {machine.topology!r} is of a TPU, and accelerator is {name or 'missing'}; leave topology out"
    if name is None:
        return (
            f"accelerator_count: {count} needs an accelerator; write which, or leave accelerator_count out" if count else ""
        )
    if platform == "kubernetes":
        is_there = name.startswith(RESOURCE_PREFIX)
        instead = (
            "write nvidia.com/gpu, or nvidia.com/mig-... for a part of a GPU, and a node_selector for one of several kinds"
        )
    else:
        is_there = name in list_names(platform)
        instead = f"it has {', '.join(list_names(platform))} (docs/accelerators.md says why no others)"
    if not is_there:
        return f"accelerator: {platform} has no {name!r}; {instead}"
    if "/mig-" in name and count > 1:
        return f"accelerator_count: a process can use one part of a GPU, not {count}; write 1, or more workers"
    if is_tpu(machine):
        if machine.topology not in TPUS[name]:
            return f"topology: one machine with {name} has {' or '.join(TPUS[name])}, not {machine.topology!r}"
        if count not in (0, _count_chips(machine.topology)):
            return f"accelerator_count: {count} is not that of {name} {machine.topology}; leave accelerator_count out"
    elif name in GPUS:
        counts = list(GPUS[name])
        # A pod on GKE may also get a part of a machine.
        if count > counts[-1] or (platform == "vertex" and (count or 1) not in counts):
            machines = " or ".join(map(str, counts))
            return (
                f"accelerator_count: a machine has {machines} {name}, not {count or 1}; write one of these, or more workers"
            )
    return ""


def _count_chips(topology: str) -> int:
    return math.prod(int(chips) for chips in topology.split("x"))

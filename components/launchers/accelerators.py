"""Lists accelerators and their names on Kubernetes, GKE and Vertex AI.

Plain data: importing this module imports neither TensorFlow nor an SDK. A pipeline file
names an accelerator by the value of GKE's node label. This is the only list of
accelerators: a new one gets a row here. Other GPUs of a cluster are named by their
Kubernetes resource, without a product.

`check` validates the user's settings. The functions below it take settings that `check`
accepts and make a platform's request of them; they check only what `check` cannot know.
"""

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tfx_distribute.trainer_module.errors import ConfigurationError

Cluster = Literal["kubernetes", "gke"]
Platform = Literal["kubernetes", "gke", "vertex"]
PLATFORMS: tuple[Platform, ...] = ("kubernetes", "gke", "vertex")
"""Any cluster with NVIDIA's device plugin; Google Kubernetes Engine; Vertex AI."""

GPU_RESOURCE, TPU_RESOURCE = "nvidia.com/gpu", "google.com/tpu"
GPU_RESOURCE_PREFIX = "nvidia.com/"
"""Prefix of the names of resources that are GPUs or parts of GPUs."""
SPOT_LABEL = "cloud.google.com/gke-spot"


@dataclass(frozen=True)
class Accelerator:
    """One row of the table of accelerators.

    Attributes:
      name: Name in a pipeline file: the value of GKE's label, or a resource.
      kind: `gpu` or `tpu`.
      vertex_type: Vertex AI's `accelerator_type`; empty if the machine type determines
        it.
      vertex_units: Units that Vertex AI counts per device: of a TPU v3, it counts the
        cores, two per chip.
      machines: Devices in one of Google's machines -> the usual machine type of Vertex
        AI; empty if Vertex AI does not offer the accelerator.
      topologies: For a TPU: topology, as chips along each dimension -> possible numbers
        of chips per machine, the usual one first.
    """

    name: str
    kind: Literal["gpu", "tpu"]
    vertex_type: str = ""
    vertex_units: int = 1
    machines: Mapping[int, str] = field(default_factory=dict)
    topologies: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def platforms(self) -> tuple[Platform, ...]:
        """Platforms that offer the accelerator."""
        is_resource = self.name.startswith(GPU_RESOURCE_PREFIX)
        offered = {
            "kubernetes": is_resource,
            "gke": not is_resource,
            "vertex": bool(self.machines),
        }
        return tuple(platform for platform in PLATFORMS if offered[platform])

    def list_counts(self, platform: Platform) -> tuple[int, ...]:
        """Returns the numbers of GPUs per machine that may be requested; empty for any.

        Vertex AI provides whole machines. On GKE, a Pod may also use an even share of a
        machine. The machines of other clusters are unknown.
        """
        if platform == "kubernetes":
            # CUDA shows a process only one part of a GPU.
            return (1,) if self.name.startswith(_MIG) else ()
        if platform == "vertex":
            return tuple(self.machines)
        max_count = max(self.machines)
        return tuple(count for count in range(1, max_count + 1) if any(whole % count == 0 for whole in self.machines))


# Machines of the N1 series, which GPUs are attached to; each GPU allows that many CPUs.
_N1 = {count: f"n1-standard-{8 * count}" for count in (1, 2, 4)}
_MIG = f"{GPU_RESOURCE_PREFIX}mig-"
_RESOURCE = re.compile(rf"{GPU_RESOURCE}|{_MIG}[a-z0-9.-]+")  # such as nvidia.com/mig-1g.5gb
_V5E_4 = ("4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4")

# Sources, read in 2026:
# - gke: https://cloud.google.com/kubernetes-engine/docs/concepts/gpus and
#   https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus. Left out:
#   devices of older TPUs made for serving (tpu-v4-lite-device, tpu-v5-lite-device), and
#   slices of v4 and v5p that are larger than a cube of 64 chips.
# - vertex: https://cloud.google.com/vertex-ai/docs/training/configure-compute and
#   https://cloud.google.com/vertex-ai/docs/reference/rest/v1/MachineSpec. Left out: TPU
#   v2, which GKE does not have, and TPU v3 with several machines.
ACCELERATORS: dict[str, Accelerator] = {
    row.name: row
    for row in (
        Accelerator(
            "nvidia-tesla-p4",
            "gpu",
            vertex_type="NVIDIA_TESLA_P4",
            machines=_N1,
        ),
        Accelerator(
            "nvidia-tesla-p100",
            "gpu",
            vertex_type="NVIDIA_TESLA_P100",
            machines=_N1,
        ),
        Accelerator(
            "nvidia-tesla-v100",
            "gpu",
            vertex_type="NVIDIA_TESLA_V100",
            machines={**_N1, 8: "n1-standard-64"},
        ),
        Accelerator(
            "nvidia-tesla-t4",
            "gpu",
            vertex_type="NVIDIA_TESLA_T4",
            machines=_N1,
        ),
        Accelerator(
            "nvidia-l4",
            "gpu",
            vertex_type="NVIDIA_L4",
            machines={
                1: "g2-standard-12",
                2: "g2-standard-24",
                4: "g2-standard-48",
                8: "g2-standard-96",
            },
        ),
        Accelerator(
            "nvidia-tesla-a100",
            "gpu",
            vertex_type="NVIDIA_TESLA_A100",
            machines={
                1: "a2-highgpu-1g",
                2: "a2-highgpu-2g",
                4: "a2-highgpu-4g",
                8: "a2-highgpu-8g",
                16: "a2-megagpu-16g",
            },
        ),
        Accelerator(
            "nvidia-a100-80gb",
            "gpu",
            vertex_type="NVIDIA_A100_80GB",
            machines={
                1: "a2-ultragpu-1g",
                2: "a2-ultragpu-2g",
                4: "a2-ultragpu-4g",
                8: "a2-ultragpu-8g",
            },
        ),
        Accelerator(
            "nvidia-h100-80gb",
            "gpu",
            vertex_type="NVIDIA_H100_80GB",
            machines={
                1: "a3-highgpu-1g",
                2: "a3-highgpu-2g",
                4: "a3-highgpu-4g",
                8: "a3-highgpu-8g",
            },
        ),
        # The same GPU, in a Google machine with a faster network.
        Accelerator(
            "nvidia-h100-mega-80gb",
            "gpu",
            vertex_type="NVIDIA_H100_MEGA_80GB",
            machines={8: "a3-megagpu-8g"},
        ),
        Accelerator(
            "nvidia-h200-141gb",
            "gpu",
            vertex_type="NVIDIA_H200_141GB",
            machines={8: "a3-ultragpu-8g"},
        ),
        Accelerator(
            "tpu-v3-device",
            "tpu",
            vertex_type="TPU_V3",
            vertex_units=2,
            machines={4: "cloud-tpu"},
            topologies={"2x2": (4,)},
        ),
        Accelerator(
            "tpu-v3-slice",
            "tpu",
            topologies=dict.fromkeys(("4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32"), (4,)),
        ),
        Accelerator("tpu-v4-podslice", "tpu", topologies=dict.fromkeys(_CUBES, (4,))),
        Accelerator(
            "tpu-v5-lite-podslice",
            "tpu",
            machines={1: "ct5lp-hightpu-1t", 4: "ct5lp-hightpu-4t", 8: "ct5lp-hightpu-8t"},
            topologies={"1x1": (1,), "2x2": (4,), "2x4": (8, 4), **dict.fromkeys(_V5E_4, (4,))},
        ),
        Accelerator("tpu-v5p-slice", "tpu", topologies=dict.fromkeys(_CUBES, (4,))),
    )
}

# `tf.sysconfig.get_build_info()` of TensorFlow 2.21 names compute capabilities up to
# 9.0. Source: https://github.com/tensorflow/tensorflow/issues/101746 and 111958.
_BLACKWELL = (
    "TensorFlow's packages, up to 2.21, are built with CUDA 12.5 or older and have no code for Blackwell GPUs (they fail "
    "with CUDA_ERROR_INVALID_PTX)"
)
REFUSED: dict[str, str] = {
    "nvidia-b200": _BLACKWELL,
    "nvidia-rtx-pro-6000": _BLACKWELL,
    "nvidia-gb200": "its machines have Arm processors, for which TFX has no packages",
    "tpu-v6e-slice": "the TensorFlow version that TFX requires does not run on it",
    "tpu7x": "the TensorFlow version that TFX requires does not run on it",
}
"""Accelerators of GKE that are left out -> the reason."""


def find(name: str, platform: Platform) -> Accelerator:
    """Returns the row of an accelerator.

    Raises:
      ConfigurationError: The platform has no accelerator of this name. The message
        names the nearest one, and all that the platform has.
    """
    if name in ACCELERATORS or _RESOURCE.fullmatch(name):
        row = _get_row(name)
        if platform in row.platforms:
            return row
    if platform == "kubernetes":
        raise ConfigurationError(
            f"accelerator: kubernetes has no {name!r}; write {GPU_RESOURCE}, or {_MIG}... for a part of a GPU, and a "
            "node_selector where the cluster has several kinds"
        )
    offered = [other.name for other in ACCELERATORS.values() if platform in other.platforms]
    if name in REFUSED:
        raise ConfigurationError(f"accelerator: {name} cannot be used: {REFUSED[name]}; write one of {', '.join(offered)}")
    # The spelling of Vertex AI is close enough for a suggestion.
    close = difflib.get_close_matches(name.lower().replace("_", "-"), offered, n=1)
    raise ConfigurationError(f"accelerator: {platform} has no {name!r};{_suggest(close)} it has {', '.join(offered)}")


def check(name: str | None, accelerator_count: int, topology: str, platform: Platform, spot: bool = False) -> None:
    """Checks that a platform has a machine with these devices.

    Args:
      name: The accelerator; None for a machine without one.
      accelerator_count: Devices per machine; 0 for one GPU, or for all chips of a TPU
        machine.
      topology: For a TPU, the arrangement of its chips; otherwise empty.
      platform: Platform of the machine.
      spot: True if the machine may be taken away at any time.

    Raises:
      ConfigurationError: No machine has them. The message begins with the setting's
        name.
    """
    if spot and platform == "kubernetes":
        raise ConfigurationError(
            "spot: kubernetes has no label for spot machines that all clusters share; leave spot out, and write a "
            "node_selector and tolerations of your own"
        )
    if name is None:
        for setting, value in (("topology", topology), ("accelerator_count", accelerator_count)):
            if value:
                raise ConfigurationError(f"{setting}: {value!r} needs an accelerator; write which, or leave {setting} out")
        return
    row = find(name, platform)
    if accelerator_count < 0:
        raise ConfigurationError(f"accelerator_count: {accelerator_count} is too small; write 1 or more")
    if row.kind == "gpu":
        _check_gpu(row, accelerator_count or 1, topology, platform)
    else:
        _check_tpu(row, accelerator_count, topology)


def count_devices(name: str, accelerator_count: int, topology: str = "") -> int:
    """Returns the devices in each machine: the limit of a container on Kubernetes.

    The arguments are as in `check`.
    """
    row = _get_row(name)
    return accelerator_count or (row.topologies[topology][0] if row.kind == "tpu" else 1)


def count_hosts(name: str, accelerator_count: int, topology: str = "") -> int:
    """Returns the number of machines of one accelerator: 1, or more for a large TPU.

    The arguments are as in `check`.
    """
    if _get_row(name).kind == "gpu":
        return 1
    return _count_chips(topology) // count_devices(name, accelerator_count, topology)


def get_resource_name(name: str) -> str:
    """Returns the name of the Kubernetes resource; it is the same on every cluster."""
    if name.startswith(GPU_RESOURCE_PREFIX):
        return name
    return TPU_RESOURCE if ACCELERATORS[name].kind == "tpu" else GPU_RESOURCE


def make_node_selector(name: str | None, topology: str, spot: bool) -> dict[str, str]:
    """Returns the labels of GKE that a Kubernetes node must have.

    Other clusters have none in common: a resource may be on any node that has it.
    """
    labels = {SPOT_LABEL: "true"} if spot else {}
    if name is None or name not in ACCELERATORS:
        return labels
    if ACCELERATORS[name].kind == "tpu":
        return {"cloud.google.com/gke-tpu-accelerator": name, "cloud.google.com/gke-tpu-topology": topology, **labels}
    return {"cloud.google.com/gke-accelerator": name, **labels}


def make_tolerations(name: str | None, spot: bool) -> list[dict[str, str]]:
    """Returns tolerations of the taints that reserve such Kubernetes nodes."""
    tolerations = []
    if name is not None:
        taint = TPU_RESOURCE if _get_row(name).kind == "tpu" else GPU_RESOURCE
        tolerations += [{"key": taint, "operator": "Exists", "effect": "NoSchedule"}]
    if spot:
        tolerations += [{"key": SPOT_LABEL, "operator": "Equal", "value": "true", "effect": "NoSchedule"}]
    return tolerations


def make_machine_spec(name: str, accelerator_count: int, topology: str = "", machine_type: str = "") -> dict[str, str | int]:
    """Returns Vertex AI's `MachineSpec` for these devices.

    For Vertex AI, a TPU with several machines is one replica. An empty `machine_type`
    is the usual one; the other arguments are as in `check`.
    """
    row, devices = ACCELERATORS[name], count_devices(name, accelerator_count, topology)
    spec: dict[str, str | int] = {"machine_type": machine_type or row.machines[devices]}
    if row.vertex_type:
        return {**spec, "accelerator_type": row.vertex_type, "accelerator_count": devices * row.vertex_units}
    return {**spec, "tpu_topology": topology}


def _get_row(name: str) -> Accelerator:
    """Returns the row of an accelerator that `check` accepts."""
    return ACCELERATORS.get(name) or Accelerator(name, "gpu")


def _check_gpu(row: Accelerator, requested: int, topology: str, platform: Platform) -> None:
    if topology:
        raise ConfigurationError(f"topology: {row.name} is a GPU, but topology is {topology!r}; leave topology out")
    counts = row.list_counts(platform)
    if counts and requested not in counts:
        fewer = [count for count in counts if count < requested][-1:]
        more = [count for count in counts if count > requested][:1]
        raise ConfigurationError(
            f"accelerator_count: a machine has {_join_with_or(counts)} {row.name}, not {requested}; write "
            + " or ".join(f"accelerator_count={count}" for count in (*fewer, *more))
            + ("" if more else ", and more workers")
        )


def _check_tpu(row: Accelerator, requested: int, topology: str) -> None:
    if not topology:
        raise ConfigurationError(f"topology: {row.name} needs a topology; write one of {', '.join(row.topologies)}")
    if topology not in row.topologies:
        raise ConfigurationError(f"topology: {row.name} has no {topology!r}; it has {', '.join(row.topologies)}")
    if requested and requested not in row.topologies[topology]:
        raise ConfigurationError(
            f"accelerator_count: a machine of {row.name} {topology} has {_join_with_or(row.topologies[topology])} chips, "
            f"not {requested}; write accelerator_count=0 for all of them"
        )


def _count_chips(topology: str) -> int:
    return math.prod(int(chips) for chips in topology.split("x"))


def _suggest(close: Sequence[str]) -> str:
    return f" did you mean {close[0]!r}?" if close else ""


def _join_with_or(numbers: Sequence[int]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last

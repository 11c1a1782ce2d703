"""What each accelerator is called on Kubernetes, GKE and Vertex AI. Plain data: importing this imports no TensorFlow or SDK.

A pipeline file names an accelerator as GKE labels its nodes. Nothing else lists accelerators: a new one gets a row here.

`check` takes what a person wrote and refuses what cannot be had. The functions below it turn what it took into what a
platform is asked for; they check no more than what only they know.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tfx_distribute.trainer_module.errors import ConfigurationError

Cluster = Literal["kubernetes", "gke"]
Platform = Literal["kubernetes", "gke", "vertex"]
PLATFORMS: tuple[Platform, ...] = ("kubernetes", "gke", "vertex")
"""Any cluster with NVIDIA's device plugin and GPU feature discovery; Google Kubernetes Engine; Vertex AI."""

GPU_RESOURCE, TPU_RESOURCE = "nvidia.com/gpu", "google.com/tpu"
PRODUCT = "nvidia.com/gpu.product"
"""Label that GPU feature discovery gives a node: the driver's name for its GPUs, with dashes for spaces."""


@dataclass(frozen=True)
class Accelerator:
    """One row of the table of accelerators.

    Attributes:
      name: What a pipeline file calls it: the value of GKE's label.
      kind: `gpu` or `tpu`.
      products: Values of the label `nvidia.com/gpu.product` that are it; empty where only Google has it.
      vertex_type: Vertex AI's `accelerator_type`; empty where its machine type says it all.
      vertex_units: What Vertex AI counts for one device: of a TPU v3 it counts the cores, two to a chip.
      machines: Devices of one of Google's machines -> machine types of Vertex AI; empty where Vertex AI does not sell it.
      topologies: Of a TPU: topology, as chips along each dimension -> chips that each of its machines has, the usual first.
    """

    name: str
    kind: Literal["gpu", "tpu"]
    products: tuple[str, ...] = ()
    vertex_type: str = ""
    vertex_units: int = 1
    machines: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    topologies: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def platforms(self) -> tuple[Platform, ...]:
        """Where it can be had."""
        there = {"kubernetes": bool(self.products), "gke": True, "vertex": bool(self.machines)}
        return tuple(platform for platform in PLATFORMS if there[platform])

    def counts(self, platform: Platform) -> tuple[int, ...]:
        """How many GPUs may be asked for; empty where any number may be.

        Vertex AI hands out whole machines. A Pod may also have an even share of a machine of GKE's. What machines other
        clusters have is not known here.
        """
        if platform == "kubernetes":
            return ()
        if platform == "vertex":
            return tuple(self.machines)
        most = max(self.machines)
        return tuple(count for count in range(1, most + 1) if any(whole % count == 0 for whole in self.machines))


def _n1(vcpus: Mapping[int, int]) -> dict[int, tuple[str, ...]]:
    """Machine types of the N1 series, which GPUs are attached to.

    Args:
      vcpus: GPUs -> virtual CPUs that a machine with that many may have.
    """
    sizes = {"standard": (4, 8, 16, 32, 64, 96), "highmem": (2, 4, 8, 16, 32, 64, 96), "highcpu": (16, 32, 64, 96)}
    return {
        count: tuple(f"n1-{series}-{size}" for series, row in sizes.items() for size in row if size <= most)
        for count, most in vcpus.items()
    }


_V5E_4 = ("4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4")

# Sources, read in 2026:
# - kubernetes: internal/lm/resource.go of https://github.com/NVIDIA/k8s-device-plugin makes the label. A GPU that several
#   Pods share, or a part of one, has another value there, and is not meant here.
# - gke: https://cloud.google.com/kubernetes-engine/docs/concepts/gpus and
#   https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus. Left out: the devices of older TPUs that are made for
#   serving (tpu-v4-lite-device, tpu-v5-lite-device), and slices of v4 and v5p that are larger than a cube of 64 chips.
# - vertex: https://cloud.google.com/vertex-ai/docs/training/configure-compute and
#   https://cloud.google.com/vertex-ai/docs/reference/rest/v1/MachineSpec. Left out: TPU v2, which GKE has not, and TPU v3 of
#   several machines.
ACCELERATORS: dict[str, Accelerator] = {
    row.name: row
    for row in (
        Accelerator(
            "nvidia-tesla-p4",
            "gpu",
            products=("Tesla-P4",),
            vertex_type="NVIDIA_TESLA_P4",
            machines=_n1({1: 16, 2: 32, 4: 96}),
        ),
        Accelerator(
            "nvidia-tesla-p100",
            "gpu",
            products=("Tesla-P100-SXM2-16GB", "Tesla-P100-PCIE-16GB"),
            vertex_type="NVIDIA_TESLA_P100",
            # Four of them serve 64 virtual CPUs, but no more than 208 GB of memory.
            machines={**_n1({1: 16, 2: 32}), 4: (*_n1({4: 32})[4], "n1-highcpu-64")},
        ),
        Accelerator(
            "nvidia-tesla-v100",
            "gpu",
            products=(
                "Tesla-V100-SXM2-16GB",
                "Tesla-V100-SXM2-32GB",
                "Tesla-V100-SXM3-32GB",
                "Tesla-V100-PCIE-16GB",
                "Tesla-V100-PCIE-32GB",
                "Tesla-V100S-PCIE-32GB",
            ),
            vertex_type="NVIDIA_TESLA_V100",
            machines=_n1({1: 8, 2: 16, 4: 32, 8: 96}),
        ),
        Accelerator(
            "nvidia-tesla-t4",
            "gpu",
            products=("Tesla-T4",),
            vertex_type="NVIDIA_TESLA_T4",
            machines=_n1({1: 16, 2: 32, 4: 96}),
        ),
        Accelerator(
            "nvidia-l4",
            "gpu",
            products=("NVIDIA-L4",),
            vertex_type="NVIDIA_L4",
            machines={
                1: ("g2-standard-4", "g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-32"),
                2: ("g2-standard-24",),
                4: ("g2-standard-48",),
                8: ("g2-standard-96",),
            },
        ),
        Accelerator(
            "nvidia-tesla-a100",
            "gpu",
            products=("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"),
            vertex_type="NVIDIA_TESLA_A100",
            machines={
                1: ("a2-highgpu-1g",),
                2: ("a2-highgpu-2g",),
                4: ("a2-highgpu-4g",),
                8: ("a2-highgpu-8g",),
                16: ("a2-megagpu-16g",),
            },
        ),
        Accelerator(
            "nvidia-a100-80gb",
            "gpu",
            products=("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"),
            vertex_type="NVIDIA_A100_80GB",
            machines={
                1: ("a2-ultragpu-1g",),
                2: ("a2-ultragpu-2g",),
                4: ("a2-ultragpu-4g",),
                8: ("a2-ultragpu-8g",),
            },
        ),
        Accelerator(
            "nvidia-h100-80gb",
            "gpu",
            products=("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"),
            vertex_type="NVIDIA_H100_80GB",
            machines={
                1: ("a3-highgpu-1g",),
                2: ("a3-highgpu-2g",),
                4: ("a3-highgpu-4g",),
                8: ("a3-highgpu-8g",),
            },
        ),
        # The same GPU, in a machine of Google's with a faster network.
        Accelerator(
            "nvidia-h100-mega-80gb",
            "gpu",
            vertex_type="NVIDIA_H100_MEGA_80GB",
            machines={8: ("a3-megagpu-8g",)},
        ),
        Accelerator(
            "nvidia-h200-141gb",
            "gpu",
            products=("NVIDIA-H200", "NVIDIA-H200-NVL"),
            vertex_type="NVIDIA_H200_141GB",
            machines={8: ("a3-ultragpu-8g",)},
        ),
        Accelerator(
            "nvidia-b200",
            "gpu",
            products=("NVIDIA-B200",),
            vertex_type="NVIDIA_B200",
            machines={8: ("a4-highgpu-8g",)},
        ),
        Accelerator(
            "nvidia-rtx-pro-6000",
            "gpu",
            products=("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",),
            vertex_type="NVIDIA_RTX_PRO_6000",
            machines={
                1: ("g4-standard-48",),
                2: ("g4-standard-96",),
                4: ("g4-standard-192",),
                8: ("g4-standard-384",),
            },
        ),
        Accelerator(
            "tpu-v3-device",
            "tpu",
            vertex_type="TPU_V3",
            vertex_units=2,
            machines={4: ("cloud-tpu",)},
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
            machines={1: ("ct5lp-hightpu-1t",), 4: ("ct5lp-hightpu-4t",), 8: ("ct5lp-hightpu-8t",)},
            topologies={"1x1": (1,), "2x2": (4,), "2x4": (8, 4), **dict.fromkeys(_V5E_4, (4,))},
        ),
        Accelerator("tpu-v5p-slice", "tpu", topologies=dict.fromkeys(_CUBES, (4,))),
    )
}

REFUSED: dict[str, str] = {
    "nvidia-gb200": "its machines have Arm processors, for which TFX has no packages",
    "tpu-v6e-slice": "the TensorFlow that TFX takes does not run on it",
    "tpu7x": "the TensorFlow that TFX takes does not run on it",
}
"""Accelerators of GKE's that are known and left out -> why."""


def find(name: str, platform: Platform) -> Accelerator:
    """The row of an accelerator.

    Args:
      name: What a pipeline file calls it.
      platform: Where it is wanted.

    Raises:
      ConfigurationError: There is none of this name, or not there. The message names the nearest, and all that there are.
    """
    row = ACCELERATORS.get(name)
    if row and platform in row.platforms:
        return row
    there = [other.name for other in ACCELERATORS.values() if platform in other.platforms]
    if name in REFUSED:
        raise ConfigurationError(f"accelerator: {name} cannot be used: {REFUSED[name]}; write one of {', '.join(there)}")
    # Written as Vertex AI or the node's label writes it, a name is near enough to be guessed.
    close = difflib.get_close_matches(name.lower().replace("_", "-"), there, n=1)
    raise ConfigurationError(f"accelerator: {platform} has no {name!r};{_guess(close)} it has {', '.join(there)}")


def check(name: str | None, accelerator_count: int, topology: str, platform: Platform, spot: bool = False) -> None:
    """Refuses devices that no machine of a platform has.

    Args:
      name: The accelerator; None for a machine without.
      accelerator_count: How many of them a machine has; 0 for one GPU, or for all chips of a machine of a TPU.
      topology: Of a TPU, how its chips are arranged; empty otherwise.
      platform: Where they are wanted.
      spot: Whether the machine may be taken away at any time.

    Raises:
      ConfigurationError: With a message that begins with the setting's name.
    """
    if spot and platform == "kubernetes":
        raise ConfigurationError(
            "spot: kubernetes has no label for spot machines that all clusters share; leave spot out, and write a "
            "node_selector and tolerations of your own"
        )
    if name is None:
        for setting, value in (("topology", topology), ("accelerator_count", accelerator_count)):
            if value:
                raise ConfigurationError(f"{setting}: {value!r} is of no accelerator; write which, or leave {setting} out")
        return
    row = find(name, platform)
    if accelerator_count < 0:
        raise ConfigurationError(f"accelerator_count: {accelerator_count} is too small; write 1 or more")
    if row.kind == "gpu":
        _check_gpu(row, accelerator_count or 1, topology, platform)
    else:
        _check_tpu(row, accelerator_count, topology)


def count(name: str, accelerator_count: int, topology: str = "") -> int:
    """Devices that each machine has: the limit of a container on Kubernetes.

    Args:
      name: The accelerator.
      accelerator_count: As in `check`.
      topology: As in `check`.
    """
    row = ACCELERATORS[name]
    return accelerator_count or (row.topologies[topology][0] if row.kind == "tpu" else 1)


def hosts(name: str, accelerator_count: int, topology: str = "") -> int:
    """Machines that the devices are on: one, but for a TPU of several.

    Args:
      name: The accelerator.
      accelerator_count: As in `check`.
      topology: As in `check`.
    """
    if ACCELERATORS[name].kind == "gpu":
        return 1
    return _chips(topology) // count(name, accelerator_count, topology)


def resource(name: str) -> str:
    """What Kubernetes calls the resource, on every cluster.

    Args:
      name: The accelerator.
    """
    return TPU_RESOURCE if ACCELERATORS[name].kind == "tpu" else GPU_RESOURCE


def node_selector(name: str | None, topology: str, spot: bool, platform: Cluster) -> dict[str, str]:
    """Labels that a node has to have.

    Where several products are the same accelerator, one label cannot say so: see `node_affinity`.

    Args:
      name: The accelerator; None for a machine without.
      topology: As in `check`.
      spot: As in `check`.
      platform: What the cluster is.
    """
    labels = {"cloud.google.com/gke-spot": "true"} if spot else {}
    if name is None:
        return labels
    row = ACCELERATORS[name]
    if platform == "kubernetes":
        return {PRODUCT: row.products[0]} if len(row.products) == 1 else {}
    if row.kind == "tpu":
        return {"cloud.google.com/gke-tpu-accelerator": name, "cloud.google.com/gke-tpu-topology": topology, **labels}
    return {"cloud.google.com/gke-accelerator": name, **labels}


def node_affinity(name: str | None, platform: Cluster) -> dict[str, tuple[str, ...]]:
    """Label -> values, one of which a node has to have, beside what `node_selector` asks; none for most.

    Args:
      name: The accelerator; None for a machine without.
      platform: What the cluster is.
    """
    if name is None or platform != "kubernetes" or len(ACCELERATORS[name].products) == 1:
        return {}
    return {PRODUCT: ACCELERATORS[name].products}


def tolerations(name: str | None, spot: bool, platform: Cluster) -> list[dict[str, str]]:
    """Taints of nodes that a Pod may be placed in spite of: those that keep other Pods away.

    Args:
      name: The accelerator; None for a machine without.
      spot: As in `check`.
      platform: What the cluster is.
    """
    tolerated = []
    if name is not None:
        tolerated += [{"key": resource(name), "operator": "Exists", "effect": "NoSchedule"}]
    if spot:
        key = "cloud.google.com/gke-spot"
        tolerated += [{"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"}]
    return tolerated


def machine_types(name: str, accelerator_count: int, topology: str = "") -> tuple[str, ...]:
    """Machine types of Vertex AI that have these devices.

    Args:
      name: The accelerator.
      accelerator_count: As in `check`.
      topology: As in `check`.
    """
    return ACCELERATORS[name].machines[count(name, accelerator_count, topology)]


def machine_spec(name: str, accelerator_count: int, topology: str = "", machine_type: str = "") -> dict[str, str | int]:
    """The `MachineSpec` of Vertex AI that these devices need. A TPU of several machines is one replica to it.

    Args:
      name: The accelerator.
      accelerator_count: As in `check`.
      topology: As in `check`.
      machine_type: Which machine; empty where only one has these devices.

    Raises:
      ConfigurationError: The machine cannot have them, or several can and none is chosen.
    """
    row, able = ACCELERATORS[name], machine_types(name, accelerator_count, topology)
    devices = count(name, accelerator_count, topology)
    if machine_type and machine_type not in able:
        close = difflib.get_close_matches(machine_type, able, n=1)
        raise ConfigurationError(
            f"machine_type: no {machine_type!r} has {devices} {name};{_guess(close)} write one of {', '.join(able)}"
        )
    if not machine_type and len(able) > 1:
        raise ConfigurationError(f"machine_type: several machines can have {devices} {name}; write one of {', '.join(able)}")
    spec: dict[str, str | int] = {"machine_type": machine_type or able[0]}
    if row.vertex_type:
        return {**spec, "accelerator_type": row.vertex_type, "accelerator_count": devices * row.vertex_units}
    return {**spec, "tpu_topology": topology}


def _check_gpu(row: Accelerator, asked: int, topology: str, platform: Platform) -> None:
    if topology:
        raise ConfigurationError(f"topology: {row.name} is a GPU, but topology is {topology!r}; leave topology out")
    counts = row.counts(platform)
    if counts and asked not in counts:
        fewer, more = [one for one in counts if one < asked][-1:], [one for one in counts if one > asked][:1]
        raise ConfigurationError(
            f"accelerator_count: a machine has {_either(counts)} {row.name}, not {asked}; write "
            + " or ".join(f"accelerator_count={one}" for one in (*fewer, *more))
            + ("" if more else ", and more workers")
        )


def _check_tpu(row: Accelerator, asked: int, topology: str) -> None:
    if not topology:
        raise ConfigurationError(f"topology: {row.name} is had by topology; write one of {', '.join(row.topologies)}")
    if topology not in row.topologies:
        raise ConfigurationError(
            f"topology: {row.name} has no {topology!r};{_guess(_nearest(topology, list(row.topologies)))} "
            f"it has {', '.join(row.topologies)}"
        )
    if asked and asked not in row.topologies[topology]:
        raise ConfigurationError(
            f"accelerator_count: a machine of {row.name} {topology} has {_either(row.topologies[topology])} chips, not "
            f"{asked}; write accelerator_count=0 for all of them"
        )


def _chips(topology: str) -> int:
    return math.prod(int(along) for along in topology.split("x"))


def _nearest(topology: str, known: Sequence[str]) -> list[str]:
    """The topology with about as many chips; none where it cannot be said."""
    try:
        chips = _chips(topology)
    except ValueError:
        return []
    return [min(known, key=lambda one: abs(_chips(one) - chips))]


def _guess(close: Sequence[str]) -> str:
    return f" did you mean {close[0]!r}?" if close else ""


def _either(numbers: Sequence[int]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last

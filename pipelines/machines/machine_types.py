"""Lists machine types of Vertex AI to choose from, with CPUs and memory.

Plain data: importing this module imports neither TensorFlow nor an SDK. Besides those
that `find_smallest` chooses from, it has those that need another disk than the
service's default; a pipeline file may name any other machine type.

Sources, as of 2026:
- names: the list of machine types in
  https://cloud.google.com/vertex-ai/docs/training/configure-compute#machine-types.
- CPUs and memory: https://cloud.google.com/compute/docs/general-purpose-machines,
  https://cloud.google.com/compute/docs/accelerator-optimized-machines and
  https://cloud.google.com/tpu/docs/v5e.
- disks: https://cloud.google.com/compute/docs/disks/persistent-disks and
  https://cloud.google.com/compute/docs/disks/hyperdisks, of those that Vertex AI has.
"""

from collections.abc import Iterable
from dataclasses import dataclass

# The service's own processes use up to 40 % of the memory of small machines. The
# documentation has no number for larger ones; we leave them what they may use of 16
# GiB, the memory of the service's usual machines.
AGENTS_SHARE = 0.4
MAX_AGENTS_GIB = 16 * AGENTS_SHARE


@dataclass(frozen=True)
class MachineType:
    """A machine type of Vertex AI.

    Its CPUs are virtual. The first of the types of disks that it can start from is the
    service's default.
    """

    name: str
    cpus: int
    memory_gib: float
    boot_disk_types: tuple[str, ...] = ("pd-ssd", "pd-standard")

    @property
    def usable_gib(self) -> float:
        """Memory that the service's agents leave, in GiB."""
        return self.memory_gib - min(AGENTS_SHARE * self.memory_gib, MAX_AGENTS_GIB)

    def suffices(self, cpus: float, memory_gib: float) -> bool:
        """Returns True if a machine has this many CPUs and usable memory."""
        return self.cpus >= cpus and self.usable_gib >= memory_gib


_PD = ("pd-ssd", "pd-standard")
_SSD_OR_HYPERDISK = ("pd-ssd", "hyperdisk-balanced")
_HYPERDISK = ("hyperdisk-balanced",)
_N4_SIZES = (2, 4, 8, 16, 32, 48, 64, 80)


def _series(name: str, gib_per_cpu: float, sizes: tuple[int, ...], disks: tuple[str, ...] = _PD) -> list[MachineType]:
    return [MachineType(f"{name}-{cpus}", cpus, cpus * gib_per_cpu, disks) for cpus in sizes]


MACHINE_TYPES: dict[str, MachineType] = {
    row.name: row
    for row in (
        *_series("n4-standard", 4, _N4_SIZES, _HYPERDISK),
        *_series("n4-highmem", 8, _N4_SIZES, _HYPERDISK),
        *_series("n4-highcpu", 2, _N4_SIZES, _HYPERDISK),
        *_series("n2-standard", 4, (4, 8, 16, 32, 48, 64, 80)),
        *_series("n2-highmem", 8, (2, 4, 8, 16, 32, 48, 64, 80)),
        *_series("n1-standard", 3.75, (4, 8, 16, 32, 64, 96)),
        *_series("n1-highmem", 6.5, (2, 4, 8, 16, 32, 64, 96)),
        *_series("n1-highcpu", 0.9, (16, 32, 64, 96)),
        *_series("g2-standard", 4, (4, 8, 12, 16, 24, 32, 48, 96), ("pd-ssd",)),
        MachineType("a2-highgpu-1g", 12, 85),
        MachineType("a2-highgpu-2g", 24, 170),
        MachineType("a2-highgpu-4g", 48, 340),
        MachineType("a2-highgpu-8g", 96, 680),
        MachineType("a2-megagpu-16g", 96, 1360),
        MachineType("a2-ultragpu-1g", 12, 170),
        MachineType("a2-ultragpu-2g", 24, 340),
        MachineType("a2-ultragpu-4g", 48, 680),
        MachineType("a2-ultragpu-8g", 96, 1360),
        MachineType("a3-highgpu-1g", 26, 234, _SSD_OR_HYPERDISK),
        MachineType("a3-highgpu-2g", 52, 468, _SSD_OR_HYPERDISK),
        MachineType("a3-highgpu-4g", 104, 936, _SSD_OR_HYPERDISK),
        MachineType("a3-highgpu-8g", 208, 1872, _SSD_OR_HYPERDISK),
        MachineType("a3-megagpu-8g", 208, 1872, _SSD_OR_HYPERDISK),
        MachineType("a3-ultragpu-8g", 224, 2952, _HYPERDISK),
        MachineType("cloud-tpu", 96, 340),
        MachineType("ct5lp-hightpu-1t", 24, 48),
        MachineType("ct5lp-hightpu-4t", 112, 192),
        MachineType("ct5lp-hightpu-8t", 224, 384),
    )
}

N2 = tuple(name for name in MACHINE_TYPES if name.startswith(("n2-standard-", "n2-highmem-")))
"""Machine types to choose from where a pipeline file names neither one nor an
accelerator."""


def find_smallest(names: Iterable[str], cpus: float, memory_gib: float) -> MachineType | None:
    """Returns the smallest of several machine types that suffices; None if none does.

    ```python
    find_smallest(N2, cpus=4, memory_gib=16).name  # "n2-highmem-4"
    ```

    The memory of the service's agents is added to `memory_gib`.
    """
    rows = [row for name in names if (row := MACHINE_TYPES[name]).suffices(cpus, memory_gib)]
    return min(rows, key=lambda row: (row.cpus, row.memory_gib), default=None)


def add_agents(memory_gib: float) -> float:
    """Returns the memory of a machine that leaves this much, in GiB.

    ```python
    add_agents(9.6)  # 16.0
    ```
    """
    return min(memory_gib / (1 - AGENTS_SHARE), memory_gib + MAX_AGENTS_GIB)

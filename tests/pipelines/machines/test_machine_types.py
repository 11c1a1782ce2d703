"""Tests the list of Vertex AI's machine types, also against the SDK."""

import pytest
from google.cloud.aiplatform_v1.types import AcceleratorType

from tfx_distribute.components.launchers import accelerators
from tfx_distribute.pipelines.machines import machine_types
from tfx_distribute.pipelines.machines.machine_types import MACHINE_TYPES


def test_machines_with_accelerators_are_those_of_the_other_table():
    with_accelerators = {
        name for row in accelerators.ACCELERATORS.values() for names in row.machines.values() for name in names
    }
    assert with_accelerators <= set(MACHINE_TYPES)
    attached = {name for name in MACHINE_TYPES if name.startswith("n1-")}
    assert attached <= with_accelerators


def test_the_sdk_knows_every_accelerator():
    types = {row.vertex_type for row in accelerators.ACCELERATORS.values() if row.vertex_type}
    assert types <= {member.name for member in AcceleratorType}


@pytest.mark.parametrize(
    ("name", "usable_gib"),
    [("n2-highmem-2", 9.6), ("n1-standard-4", 9.0), ("n1-standard-8", 23.6), ("a2-highgpu-8g", 673.6)],
)
def test_agents_use_some_of_the_memory(name, usable_gib):
    row = MACHINE_TYPES[name]
    assert row.usable_gib == pytest.approx(usable_gib)
    assert row.suffices(row.cpus, usable_gib - 0.01)
    assert not row.suffices(row.cpus, usable_gib + 0.01)
    assert not row.suffices(row.cpus + 1, 0)
    assert machine_types.add_agents(usable_gib) == pytest.approx(row.memory_gib)


def test_machines_of_the_n4_series():
    """Their names are Google's list; they start from one type of disk only."""
    sizes = {"standard": 4, "highmem": 8, "highcpu": 2}
    for series, gib_per_cpu in sizes.items():
        for cpus in (2, 4, 8, 16, 32, 48, 64, 80):
            row = MACHINE_TYPES[f"n4-{series}-{cpus}"]
            assert (row.cpus, row.memory_gib) == (cpus, cpus * gib_per_cpu)
            assert row.boot_disk_types == ("hyperdisk-balanced",)


def test_the_smallest_of_several():
    found = machine_types.find_smallest(("n1-standard-16", "n1-standard-8", "n1-highmem-8", "n1-standard-4"), 5, 20)
    assert found == MACHINE_TYPES["n1-standard-8"]
    assert machine_types.find_smallest(("n1-standard-4",), 5, 0) is None

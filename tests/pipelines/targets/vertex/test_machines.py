import pytest

from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.vertex import machines as vertex_machines
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.mark.parametrize(
    ("node", "machine"),
    [
        (MachineSpec(), {"machine_type": "n1-standard-4"}),
        (MachineSpec(cpu="3"), {"machine_type": "n2-standard-4"}),
        (MachineSpec(cpu="2", memory="8Gi"), {"machine_type": "n2-highmem-2"}),  # Vertex AI has no n2-standard-2
        (MachineSpec(cpu="4", memory="9Gi"), {"machine_type": "n2-standard-4"}),
        (MachineSpec(cpu="4", memory="16Gi"), {"machine_type": "n2-highmem-4"}),  # its agents use some of 16 GiB
        (MachineSpec(cpu="64", memory="300Gi"), {"machine_type": "n2-highmem-64"}),
        (MachineSpec(memory="600G"), {"machine_type": "n2-highmem-80"}),
        (MachineSpec(machine_type="c2-standard-30", cpu="3"), {"machine_type": "c2-standard-30"}),
        (MachineSpec(machine_type="of-tomorrow-2"), {"machine_type": "of-tomorrow-2"}),
        (
            MachineSpec(accelerator="nvidia-l4"),
            {"machine_type": "g2-standard-4", "accelerator_type": "NVIDIA_L4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="nvidia-l4", cpu="10"),
            {"machine_type": "g2-standard-12", "accelerator_type": "NVIDIA_L4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="nvidia-tesla-t4"),
            {"machine_type": "n1-standard-4", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="nvidia-tesla-t4", cpu="2", memory="4Gi"),
            {"machine_type": "n1-standard-4", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="nvidia-tesla-t4", machine_type="n1-highmem-2"),
            {"machine_type": "n1-highmem-2", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="nvidia-tesla-t4", memory="19Gi"),
            {"machine_type": "n1-highmem-4", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="nvidia-l4", memory="40Gi"),
            {"machine_type": "g2-standard-12", "accelerator_type": "NVIDIA_L4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="nvidia-tesla-a100", accelerator_count=8, cpu="90"),
            {"machine_type": "a2-highgpu-8g", "accelerator_type": "NVIDIA_TESLA_A100", "accelerator_count": 8},
        ),
        (
            MachineSpec(accelerator="nvidia-tesla-t4", machine_type="n1-highmem-8"),
            {"machine_type": "n1-highmem-8", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="tpu-v5-lite-podslice", topology="2x2"),
            {"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "2x2"},
        ),
        (
            MachineSpec(accelerator="tpu-v3-device", topology="2x2"),
            {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": 8},
        ),
    ],
)
def test_machine_of_a_worker_pool(node, machine):
    assert vertex_machines.make_machine_spec(node) == machine


def test_a_reservation_goes_with_the_machine():
    name = "projects/p/zones/europe-west4-a/reservations/r"
    assert vertex_machines.make_machine_spec(MachineSpec(), name)["reservation_affinity"] == {
        "reservation_affinity_type": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [name],
    }


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (MachineSpec(cpu="300"), "machine_type: none of n2-standard-4, "),
        (
            MachineSpec(accelerator="nvidia-l4", cpu="64"),
            "has 64 CPUs and any of memory, besides that of Vertex",
        ),
        (
            MachineSpec(accelerator="nvidia-l4", machine_type="g2-standard-24"),
            "no 'g2-standard-24' has 1 nvidia-l4; did you mean",
        ),
    ],
)
def test_machine_that_vertex_ai_has_not(node, message):
    with pytest.raises(ConfigurationError) as error:
        vertex_machines.make_machine_spec(node)
    assert message in str(error.value)


def test_resources_of_a_step():
    assert vertex_machines.make_resource_spec(MachineSpec()) == {}
    assert vertex_machines.make_resource_spec(MachineSpec(cpu="500m", memory="2G", accelerator="nvidia-tesla-t4")) == {
        "cpuLimit": 0.5,
        "memoryLimit": 3.33,  # with that of Vertex AI's agents
        "accelerator": {"type": "NVIDIA_TESLA_T4", "count": "1"},
    }

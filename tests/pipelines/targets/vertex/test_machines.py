import pytest
from compiled_for_vertex import TARGET

from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.vertex import machines as vertex_machines
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.mark.parametrize(
    ("node", "machine"),
    [
        (MachineSpec(), {"machine_type": "n1-standard-4"}),
        (MachineSpec(cpu="3"), {"machine_type": "n2-standard-4"}),
        (MachineSpec(cpu="4", memory="16Gi"), {"machine_type": "n2-highmem-4"}),  # its agents use some of 16 GiB
        (MachineSpec(memory="600G"), {"machine_type": "n2-highmem-80"}),
        (MachineSpec(machine_type="c2-standard-30", cpu="3"), {"machine_type": "c2-standard-30"}),
        (
            MachineSpec(accelerator="nvidia-l4", cpu="10", memory="400Gi"),
            {"machine_type": "g2-standard-12", "accelerator_type": "NVIDIA_L4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="nvidia-tesla-t4", machine_type="n1-highmem-8"),
            {"machine_type": "n1-highmem-8", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1},
        ),
        (
            MachineSpec(accelerator="tpu-v5-lite-podslice", topology="2x4"),
            {"machine_type": "ct5lp-hightpu-8t", "tpu_topology": "2x4"},
        ),
    ],
)
def test_machine_of_a_worker_pool(node, machine):
    assert vertex_machines.make_machine_spec(node) == machine


def test_machine_that_vertex_ai_has_not():
    with pytest.raises(ConfigurationError, match="machine_type: no N2 machine has 300 CPUs and any of memory, besides that"):
        vertex_machines.make_machine_spec(MachineSpec(cpu="300"))


def test_resources_of_a_step():
    assert vertex_machines.make_resource_spec(MachineSpec()) == {}
    assert vertex_machines.make_resource_spec(MachineSpec(cpu="500m", memory="2G", accelerator="nvidia-tesla-t4")) == {
        "cpuLimit": 0.5,
        "memoryLimit": 3.33,  # with that of Vertex AI's agents
        "accelerator": {"type": "NVIDIA_TESLA_T4", "count": "1"},
    }


@pytest.mark.parametrize(
    ("settings", "machine", "job"),
    [
        ({"custom_job": {"enable_web_access": True}}, {}, {"enable_web_access": True}),
        ({"worker_pool": {"nfs_mounts": []}}, {}, {}),
        ({}, {"machine_type": "n1-standard-96"}, {}),
        ({}, {"accelerator": "nvidia-l4", "spot": True}, {"scheduling": {"strategy": "SPOT"}}),
    ],
)
def test_what_no_step_has_is_had_by_worker_pools(settings, machine, job):
    launcher = vertex_machines.launcher_settings(
        "mine", {"Trainer": MachineSpec(**machine)}, VertexSettings(**TARGET, **settings)
    )
    assert launcher.training == "elsewhere"
    assert launcher.job.get("job_spec", {}) == job

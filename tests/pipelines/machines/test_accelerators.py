import pytest
from google.cloud.aiplatform_v1.types import AcceleratorType

from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.machines.accelerators import GPUS, TPUS
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.vertex.machines import accelerator_type
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution


@pytest.mark.parametrize(
    ("machine", "platform", "message"),
    [
        ({"accelerator": "nvidia-l5"}, "gke", "accelerator: gke has no 'nvidia-l5'; it has nvidia-tesla-p4, .*, nvidia-l4"),
        (
            {"accelerator": "nvidia-l4"},
            "kubernetes",
            "accelerator: kubernetes has no 'nvidia-l4'; write nvidia.com/gpu, or ",
        ),
        ({"accelerator": "nvidia.com/gpu"}, "gke", "accelerator: gke has no 'nvidia.com/gpu'; it has"),
        (
            {"accelerator": "nvidia.com/mig-1g.5gb", "accelerator_count": 2},
            "kubernetes",
            "accelerator_count: a process can use",
        ),
        ({"accelerator": "amd.com/gpu"}, "kubernetes", "accelerator: kubernetes has no 'amd.com/gpu'"),
        (
            {"accelerator": "tpu-v5p-slice", "topology": "2x2x1"},
            "vertex",
            "accelerator: vertex has no 'tpu-v5p-slice'; it has",
        ),
        (
            {"accelerator": "nvidia-tesla-t4", "accelerator_count": 3},
            "vertex",
            "accelerator_count: a machine has 1 or 2 or 4 nvidia-tesla-t4, not 3; write one of these, or more workers",
        ),
        (
            {"accelerator": "nvidia-h200-141gb"},
            "vertex",
            "accelerator_count: a machine has 8 nvidia-h200-141gb, not 1; write ",
        ),
        ({"accelerator": "nvidia-l4", "accelerator_count": 16}, "gke", "accelerator_count: a machine has 1 or 2 or 4 or 8 "),
        ({"accelerator_count": 2}, "gke", "accelerator_count: 2 needs an accelerator; write which, or leave"),
        (
            {"accelerator": "nvidia-l4", "topology": "2x2"},
            "gke",
            "topology: '2x2' is of a TPU, and accelerator is nvidia-l4;",
        ),
        ({"topology": "2x2"}, "gke", "topology: '2x2' is of a TPU, and accelerator is missing; leave topology out"),
        (
            {"accelerator": "tpu-v5-lite-podslice"},
            "gke",
            "topology: one machine with tpu-v5-lite-podslice has 1x1 or 2x2 or 2x4, not ''",
        ),
        (
            {"accelerator": "tpu-v5p-slice", "topology": "4x4x4"},
            "gke",
            "topology: one machine with tpu-v5p-slice has 2x2x1, not ",
        ),
        (
            {"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "accelerator_count": 4},
            "gke",
            "accelerator_count: 4 is not that of tpu-v5-lite-podslice 2x4; leave accelerator_count out",
        ),
        ({"spot": True}, "kubernetes", "spot: kubernetes has no label .* write a node_selector and tolerations"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_fix(machine, platform, message):
    with pytest.raises(ConfigurationError, match=rf"^resources\.Trainer\.{message}"):
        accelerators.check_all({"Trainer": MachineSpec(**machine)}, platform)


@pytest.mark.parametrize(
    ("machine", "platform", "devices"),
    [
        ({}, "kubernetes", 0),
        ({"accelerator": "nvidia.com/gpu", "accelerator_count": 3}, "kubernetes", 3),
        ({"accelerator": "nvidia-h200-141gb", "accelerator_count": 4}, "gke", 4),  # a part of a machine
        ({"accelerator": "nvidia-l4", "spot": True}, "vertex", 1),
        ({"spot": True}, "gke", 0),
        ({"accelerator": "tpu-v5-lite-podslice", "topology": "2x4"}, "vertex", 8),
        ({"accelerator": "tpu-v5p-slice", "topology": "2x2x1", "accelerator_count": 4}, "gke", 4),
    ],
)
def test_devices_of_a_machine_that_can_be_had(machine, platform, devices):
    accelerators.check_all({"Trainer": MachineSpec(**machine)}, platform)
    assert accelerators.count_devices(MachineSpec(**machine)) == devices


@pytest.mark.parametrize(
    ("distribution", "used"),
    [
        (Distribution("one_device"), "1"),
        (Distribution("default"), "1"),
        (Distribution("parameter_server", num_workers=2), "1"),
        (Distribution("mirrored", accelerator_count=1), "1"),
        (Distribution("model_parallel", mesh="1x2"), "2"),
        (Distribution("mirrored", accelerator_type="cpu"), "none"),
    ],
)
def test_gpus_that_no_strategy_uses(distribution, used):
    machine = MachineSpec(accelerator="nvidia-l4", accelerator_count=4)
    (warning,) = accelerators.warn_of_idle_devices(machine, distribution)
    assert warning.startswith("resources.Trainer: a machine has 4 nvidia-l4, and a training process under strategy ")
    assert f"{distribution.strategy} uses {used} of them; " in warning


@pytest.mark.parametrize(
    ("machine", "distribution"),
    [
        (MachineSpec(), Distribution("one_device")),
        (MachineSpec(accelerator="nvidia-l4"), Distribution("one_device")),
        (MachineSpec(accelerator="nvidia-l4", accelerator_count=4), Distribution("mirrored")),
        (MachineSpec(accelerator="nvidia-l4", accelerator_count=4), Distribution("mirrored", accelerator_count=4)),
        (MachineSpec(accelerator="tpu-v5-lite-podslice", topology="2x2"), Distribution("tpu")),
        (
            MachineSpec(accelerator="nvidia.com/gpu", accelerator_count=2),
            Distribution("multi_worker_mirrored", num_workers=2),
        ),
    ],
)
def test_machines_that_are_used_whole(machine, distribution):
    assert accelerators.warn_of_idle_devices(machine, distribution) == []


def test_the_sdk_knows_every_gpu():
    assert {accelerator_type(name) for name in GPUS} <= AcceleratorType.__members__.keys()


def table(page: str, name: str) -> list[str]:
    """Returns the rows of a table of a page, without its header."""
    return page.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0].splitlines()[2:]


def test_the_page_shows_the_tables_as_they_are(request):
    page = (request.config.rootpath / "docs" / "accelerators.md").read_text()
    assert table(page, "gpus") == [f"| `{name}` | {', '.join(map(str, machines))} |" for name, machines in GPUS.items()]
    on_vertex = accelerators.list_names("vertex")
    assert table(page, "tpus") == [
        f"| `{name}` | {', '.join(f'`{each}`' for each in topologies)} | {'yes' if name in on_vertex else 'no'} |"
        for name, topologies in TPUS.items()
    ]

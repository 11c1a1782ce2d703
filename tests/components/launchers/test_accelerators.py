import json
import math
import subprocess
import sys

import pytest
from google.cloud.aiplatform_v1.types import AcceleratorType

from tfx_distribute.components.launchers import accelerators
from tfx_distribute.components.launchers.accelerators import ACCELERATORS, REFUSED
from tfx_distribute.trainer_module.errors import ConfigurationError

GPUS = [row for row in ACCELERATORS.values() if row.kind == "gpu"]
TPUS = [row for row in ACCELERATORS.values() if row.kind == "tpu"]

GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TPU_TAINT = {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
SPOT_TAINT = {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}


def test_importing_it_imports_nothing_heavy():
    code = (
        "from tfx_distribute.components.launchers import accelerators; "
        "import json, sys; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    modules = json.loads(done.stdout)
    heavy = ("tensorflow", "tfx", "apache_beam", "kfp", "kubernetes", "google.api_core", "numpy", "pydantic")
    assert not [name for name in heavy if name in modules]


@pytest.mark.parametrize("row", TPUS, ids=lambda row: row.name)
def test_each_tpu_can_be_had_as_the_table_says(row):
    assert accelerators.get_resource_name(row.name) == "google.com/tpu"
    for topology, of_machine in row.topologies.items():
        chips = math.prod(map(int, topology.split("x")))
        for count in (0, *of_machine):
            for platform in row.platforms:
                accelerators.check(row.name, count, topology, platform)
            assert accelerators.count_devices(row.name, count, topology) == (count or of_machine[0])
            assert accelerators.count_hosts(row.name, count, topology) * (count or of_machine[0]) == chips
            if row.machines:
                assert accelerators.make_machine_spec(row.name, count, topology)["machine_type"]


def test_names_are_of_one_row_each():
    names = [*ACCELERATORS, *REFUSED]
    types = [row.vertex_type for row in ACCELERATORS.values() if row.vertex_type]
    for values in (names, types):
        assert len(set(values)) == len(values)
    # Any GPU can be attached to an N1 machine; other machine types include their GPUs.
    machines = [machine for row in ACCELERATORS.values() for machine in row.machines.values()]
    machines = [machine for machine in machines if not machine.startswith("n1-")]
    assert len(set(machines)) == len(machines)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            ("nvidia-l5", 1, "", "gke"),
            "accelerator: gke has no 'nvidia-l5'; did you mean 'nvidia-l4'\\? it has nvidia-tesla-p4, .*, nvidia-l4",
        ),
        (
            ("nvidia-l4", 1, "", "kubernetes"),
            "accelerator: kubernetes has no 'nvidia-l4'; write nvidia.com/gpu, or nvidia.com/mig-",
        ),
        (("nvidia.com/gpu", 1, "", "gke"), "accelerator: gke has no 'nvidia.com/gpu'; it has"),
        (("amd.com/gpu", 1, "", "kubernetes"), "accelerator: kubernetes has no 'amd.com/gpu'"),
        (
            ("nvidia.com/mig-1g.5gb", 2, "", "kubernetes"),
            "accelerator_count: a machine has 1 nvidia.com/mig-1g.5gb, not 2; write accelerator_count=1, and more workers",
        ),
        (
            ("tpu-v6e-slice", 0, "2x2", "gke"),
            "accelerator: tpu-v6e-slice cannot be used: the TensorFlow version that TFX requires does not run on it; write ",
        ),
        (
            ("nvidia-tesla-t4", 3, "", "gke"),
            "accelerator_count: a machine has 1, 2 or 4 nvidia-tesla-t4, not 3; write accelerator_count=2 or "
            "accelerator_count=4",
        ),
        (("nvidia-l4", -1, "", "gke"), "accelerator_count: -1 is too small; write 1 or more"),
        (("nvidia-l4", 1, "2x2", "gke"), "topology: nvidia-l4 is a GPU, but topology is '2x2'; leave topology out"),
        ((None, 0, "2x2", "gke"), "topology: '2x2' needs an accelerator; write which, or leave topology out"),
        (
            ("tpu-v5-lite-podslice", 0, "", "gke"),
            "topology: tpu-v5-lite-podslice needs a topology; write one of 1x1, 2x2, 2x4, 4x4",
        ),
        (
            ("tpu-v5-lite-podslice", 0, "3x3", "gke"),
            "topology: tpu-v5-lite-podslice has no '3x3'; it has 1x1, 2x2, 2x4, 4x4, 4x8, ",
        ),
        (("tpu-v5p-slice", 0, "large", "gke"), "topology: tpu-v5p-slice has no 'large'; it has 2x2x1, 2x2x2"),
        (
            ("tpu-v5-lite-podslice", 2, "2x4", "gke"),
            "accelerator_count: a machine of tpu-v5-lite-podslice 2x4 has 8 or 4 chips, not 2; write accelerator_count=0",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_fix(request_, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        accelerators.check(*request_)


def test_any_number_of_gpus_may_be_asked_of_a_cluster_whose_machines_are_not_known():
    accelerators.check("nvidia.com/gpu", 3, "", "kubernetes")


def test_a_pod_may_have_an_even_share_of_a_machine():
    accelerators.check("nvidia-h200-141gb", 4, "", "gke")
    assert ACCELERATORS["nvidia-h200-141gb"].list_counts("gke") == (1, 2, 4, 8)


def test_spot_is_refused_where_clusters_share_no_label_for_it():
    for call in (
        lambda: accelerators.check("nvidia.com/gpu", 1, "", "kubernetes", spot=True),
        lambda: accelerators.check(None, 0, "", "kubernetes", spot=True),
    ):
        with pytest.raises(
            ConfigurationError, match="^spot: kubernetes has no label .* write a node_selector and tolerations"
        ):
            call()
    accelerators.check("nvidia-l4", 1, "", "vertex", spot=True)
    accelerators.check(None, 0, "", "gke", spot=True)


@pytest.mark.parametrize(
    ("name", "topology", "spot", "labels", "tolerated"),
    [
        (None, "", False, {}, []),
        (None, "", True, {"cloud.google.com/gke-spot": "true"}, [SPOT_TAINT]),
        ("nvidia.com/gpu", "", False, {}, [GPU_TAINT]),
        ("nvidia-l4", "", False, {"cloud.google.com/gke-accelerator": "nvidia-l4"}, [GPU_TAINT]),
        (
            "nvidia-tesla-a100",
            "",
            True,
            {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100", "cloud.google.com/gke-spot": "true"},
            [GPU_TAINT, SPOT_TAINT],
        ),
        (
            "tpu-v5-lite-podslice",
            "2x4",
            False,
            {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                "cloud.google.com/gke-tpu-topology": "2x4",
            },
            [TPU_TAINT],
        ),
        (
            "tpu-v5p-slice",
            "2x2x1",
            True,
            {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
                "cloud.google.com/gke-tpu-topology": "2x2x1",
                "cloud.google.com/gke-spot": "true",
            },
            [TPU_TAINT, SPOT_TAINT],
        ),
    ],
)
def test_nodes(name, topology, spot, labels, tolerated):
    assert accelerators.make_node_selector(name, topology, spot) == labels
    assert accelerators.make_tolerations(name, spot) == tolerated


def test_nothing_said_of_how_many_is_one_gpu_or_all_chips_of_a_machine():
    accelerators.check("nvidia-l4", 0, "", "gke")
    assert accelerators.count_devices("nvidia-l4", 0) == 1
    assert accelerators.count_devices("tpu-v5-lite-podslice", 0, "2x4") == 8


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        (
            ("nvidia-tesla-a100", 8),
            {"machine_type": "a2-highgpu-8g", "accelerator_type": "NVIDIA_TESLA_A100", "accelerator_count": 8},
        ),
        (
            ("nvidia-l4", 0),
            {"machine_type": "g2-standard-12", "accelerator_type": "NVIDIA_L4", "accelerator_count": 1},
        ),
        (
            ("nvidia-tesla-t4", 2, "", "n1-highmem-8"),
            {"machine_type": "n1-highmem-8", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2},
        ),
        (("tpu-v5-lite-podslice", 0, "2x4"), {"machine_type": "ct5lp-hightpu-8t", "tpu_topology": "2x4"}),
        (("tpu-v5-lite-podslice", 4, "2x4"), {"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "2x4"}),
        (("tpu-v5-lite-podslice", 0, "4x4"), {"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "4x4"}),
        # Vertex AI counts the cores of a TPU v3.
        (
            ("tpu-v3-device", 0, "2x2"),
            {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": 8},
        ),
    ],
)
def test_machines_of_vertex_ai(arguments, spec):
    assert accelerators.make_machine_spec(*arguments) == spec


def test_the_sdk_knows_every_accelerator():
    assert {row.vertex_type for row in ACCELERATORS.values() if row.vertex_type} <= AcceleratorType.__members__.keys()


def table(page: str, name: str) -> list[str]:
    """Returns the rows of a table of a page, without its header."""
    return page.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0].splitlines()[2:]


def row_of(*cells: str) -> str:
    return ("| " + " | ".join(cells) + " |").replace("|  |", "| |")


def arranged(topology: str, of_machine: tuple[int, ...]) -> str:
    chips = math.prod(map(int, topology.split("x")))
    return f"`{topology}` " + " or ".join(f"{chips // count} of {count}" for count in of_machine)


def test_the_page_shows_the_table_as_it_is(request):
    page = (request.config.rootpath / "docs" / "accelerators.md").read_text()
    assert table(page, "gpus") == [
        row_of(f"`{row.name}`", ", ".join(map(str, row.machines)), f"`{row.vertex_type}`") for row in GPUS
    ]
    assert table(page, "tpus") == [
        row_of(
            f"`{row.name}`",
            ", ".join(arranged(*one) for one in row.topologies.items()),
            "yes" if "vertex" in row.platforms else "no",
        )
        for row in TPUS
    ]
    assert table(page, "refused") == [row_of(f"`{name}`", reason) for name, reason in REFUSED.items()]

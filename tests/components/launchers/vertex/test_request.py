"""Tests the requests for CustomJobs against expected documents and the messages."""

import subprocess
import sys
from dataclasses import replace

import pytest
from google.cloud.aiplatform_v1.types import CustomJob
from google.protobuf import json_format

from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.components.launchers.vertex.launcher import VertexLauncher, VertexTrainingSettings
from tfx_distribute.trainer_module.job.training_job import Distribution

CONTAINER = {"image_uri": "europe-west4-docker.pkg.dev/example-project/team/digits:1"}
WORKER = {
    "machine_spec": {"machine_type": "g2-standard-24", "accelerator_type": "NVIDIA_L4", "accelerator_count": 2},
    "container_spec": CONTAINER,
    "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 200},
}
SETTINGS = VertexTrainingSettings(
    name="digits",
    project="example-project",
    location="europe-west4",
    worker=WORKER,
    parameter_server={
        "machine_spec": {"machine_type": "n2-highmem-8"},
        "container_spec": CONTAINER,
        "disk_spec": {"boot_disk_size_gb": 500},
    },
    reduction_server={
        "machine_spec": {"machine_type": "n1-highcpu-16"},
        "replica_count": 4,
        "container_spec": {"image_uri": "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"},
    },
    job={"labels": {"team": "a"}},
)
RESERVATION = {
    "reservation_affinity_type": "SPECIFIC_RESERVATION",
    "key": "compute.googleapis.com/reservation-name",
    "values": ["projects/example-project/zones/europe-west4-a/reservations/l4"],
}
EVERYTHING = replace(
    SETTINGS,
    worker={**WORKER, "machine_spec": {**WORKER["machine_spec"], "reservation_affinity": RESERVATION}},
    job={
        "labels": {"team": "a"},
        "encryption_spec": {"kms_key_name": "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"},
        "job_spec": {
            "scheduling": {"strategy": "SPOT", "timeout": "86400s", "restart_job_on_worker_restart": True},
            "service_account": "trainer@example-project.iam.gserviceaccount.com",
            "network": "projects/1234/global/networks/training",
            "psc_interface_config": {"network_attachment": "training"},
            "tensorboard": "projects/1234/locations/europe-west4/tensorboards/5678",
        },
    },
)
TPU = {"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "2x2"}
CASES = {
    "default": (Distribution(), SETTINGS),
    "one_device": (Distribution("one_device"), SETTINGS),
    "mirrored": (Distribution("mirrored", accelerator_count=2), SETTINGS),
    "central_storage": (Distribution("central_storage", accelerator_count=2), SETTINGS),
    "multi_worker_mirrored": (Distribution("multi_worker_mirrored", num_workers=3), SETTINGS),
    "multi_worker_mirrored_evaluator": (
        Distribution("multi_worker_mirrored", num_workers=3, num_evaluators=1),
        SETTINGS,
    ),
    "one_worker_and_evaluator": (Distribution("multi_worker_mirrored", num_workers=1, num_evaluators=1), SETTINGS),
    "reduction_server": (
        Distribution("multi_worker_mirrored", num_workers=3, num_evaluators=1, all_reduce="reduction_server"),
        SETTINGS,
    ),
    "parameter_server": (
        Distribution("parameter_server", num_workers=2, num_parameter_servers=2, num_evaluators=1),
        SETTINGS,
    ),
    "tpu": (Distribution("tpu"), replace(SETTINGS, worker={**WORKER, "machine_spec": TPU})),
    "model_parallel": (Distribution("model_parallel", mesh="1x2"), SETTINGS),
    "everything": (Distribution("multi_worker_mirrored", num_workers=2), EVERYTHING),
}


def make(case: str) -> dict:
    distribution, settings = CASES[case]
    address = "gs://example-bucket/digits/digits-1/job.json"
    return VertexLauncher(settings).request(Training("digits-1", address, distribution, {"TF_USE_LEGACY_KERAS": "1"}))


@pytest.mark.parametrize("case", CASES)
def test_job_of_each_strategy(case, expected):
    is_same = case in ("one_device", "mirrored", "central_storage", "model_parallel")  # for the platform
    expected(f"vertex/{'default' if is_same else case}", make(case))
    # ParseDict is strict: it raises for a field that the API does not have.
    json_format.ParseDict(make(case), CustomJob.pb(CustomJob()))


def test_a_pool_that_is_not_needed_is_empty():
    pools = make("multi_worker_mirrored_evaluator")["job_spec"]["worker_pool_specs"]
    assert [pool.get("replica_count") for pool in pools] == [1, 2, None, 1]


def test_a_request_needs_no_client():
    code = (
        "import sys\n"
        "from tfx_distribute.components.launchers.vertex.launcher import VertexLauncher\n"
        "print(*[name for name in ('tensorflow', 'google.cloud.aiplatform', 'google.api_core') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"

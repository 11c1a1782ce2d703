"""Tests `tfx-distribute doctor --target vertex` against the stand-in of a project."""

from collections.abc import Callable
from pathlib import Path

import pytest
import vertex_quotas
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from vertex_api import VertexApi
from vertex_example import ACCOUNT, DIGITS, grant_roles, run_command, write_with
from vertex_project import Project

from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.runners.vertex import image_name
from tfx_distribute.pipelines.runners.vertex.doctor import quota_checks, rest
from tfx_distribute.pipelines.runners.vertex.target import VertexTarget
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.trainer_module.errors import ConfigurationError

POOLS = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=4")
L4_QUOTA = "custom_model_training_preemptible_nvidia_l4_gpus"
L4 = f"aiplatform.googleapis.com/{L4_QUOTA}"
BASE = "projects/example-project/locations/europe-west4"
KEY, TENSORBOARD = f"{BASE}/keyRings/ring/cryptoKeys/key", f"{BASE}/tensorboards/1"
RESERVATION = "projects/example-project/zones/europe-west4-a/reservations/mine"
NETWORK = "projects/123456789012/global/networks/training"


def doctor(cloud: VertexApi, file: Path = DIGITS, account: str = "", *words: str) -> tuple[int, list[str]]:
    """Returns the exit code and the lines."""
    with cloud.connected(account=account):
        result = run_command("doctor", file, "--target", "vertex", *POOLS, *words)
    return result.exit_code, result.output.splitlines()


def test_a_project_that_is_ready(cloud):
    grant_roles(cloud, DIGITS, *POOLS)
    cloud.around.limits[L4] = 4
    code, lines = doctor(cloud)
    assert code == 0, lines
    assert {line.split()[0] for line in lines} == {"pass"}
    assert lines[0] == "pass     project example-project: exists (projects/123456789012)"
    assert "pass     bucket gs://example-bucket: is in europe-west4" in lines
    assert lines[-1] == f"pass     quota {L4_QUOTA}: training needs 4, and the limit in europe-west4 is 4"


def test_the_document_shows_what_is_printed(cloud, monkeypatch):
    monkeypatch.chdir(DIGITS.parents[2])
    file = DIGITS.relative_to(DIGITS.parents[2])
    document = Path("docs/vertex.md").read_text()
    printed = run_command("manifests", file, "--target", "vertex", *POOLS).output
    assert f"```sh\n{printed}```" in document
    grant_roles(cloud, file, *POOLS)
    cloud.around.iam.revoke("projects/example-project", "roles/logging.logWriter")
    cloud.around.limits[L4] = 1
    code, lines = doctor(cloud, file)
    assert code == 1
    command = f"$ tfx-distribute doctor {file} --target vertex {' '.join(POOLS)}"
    assert "\n".join(["```", command, *lines, "```"]) in document


def disable_service(project: Project) -> None:
    project.services.remove("aiplatform.googleapis.com")


def close_project(project: Project) -> None:
    project.name = "other"


def move_region(project: Project) -> None:
    project.location = "us-central1"


def remove_account(project: Project) -> None:
    project.accounts = set()


def remove_bucket(project: Project) -> None:
    del project.buckets["example-bucket"]


def remove_image(project: Project) -> None:
    project.images.clear()


def remove_role(project: Project) -> None:
    project.iam.revoke("buckets/example-bucket", "roles/storage.objectUser")


def remove_act_as(project: Project) -> None:
    project.iam.revoke(f"serviceAccounts/{ACCOUNT}", "roles/iam.serviceAccountUser")


def remove_quota(project: Project) -> None:
    project.limits[L4] = 3


@pytest.mark.parametrize(
    ("break_project", "line"),
    [
        (close_project, "project example-project: does not exist, or you may not see it (Permission '"),
        (
            disable_service,
            "services: aiplatform.googleapis.com not enabled; run `gcloud services enable aiplatform.googleapis.com",
        ),
        (move_region, "region europe-west4: Vertex AI does not answer there (Location europe-west4 is not found"),
        (remove_account, f"service account {ACCOUNT}: does not exist; run `gcloud iam service-accounts create trainer --"),
        (
            remove_bucket,
            "bucket gs://example-bucket: does not exist; correct its name, or run `gcloud storage buckets create gs://example-",
        ),
        (
            remove_image,
            "image europe-west4-docker.pkg.dev/example-project/team/digits:1-gpu: does not exist; build and push",
        ),
        (
            remove_role,
            f"roles/storage.objectUser of {ACCOUNT} on example-bucket: is missing; the run writes here, and renames, which",
        ),
        (remove_act_as, f"roles/iam.serviceAccountUser of {ACCOUNT} on {ACCOUNT}: is missing; the Trainer's step creates a"),
        (
            remove_quota,
            f"quota {L4_QUOTA}: training needs 4, and the limit in europe-west4 is 3; ask",
        ),
    ],
)
def test_what_is_wrong_is_named(cloud, break_project: Callable[[Project], None], line: str):
    grant_roles(cloud, DIGITS, *POOLS)
    break_project(cloud.around)
    code, lines = doctor(cloud)
    assert code == 1
    failed = [each for each in lines if each.startswith("fail ")]
    assert [each for each in failed if each.startswith(f"fail     {line}")], lines
    # A bucket that is gone has no policy either, which is not known then.
    assert len(failed) == 1, failed


def test_a_person_without_roles(cloud):
    """Nothing is said to be wrong that this person only may not see."""
    grant_roles(cloud, DIGITS, *POOLS)
    code, lines = doctor(cloud, DIGITS, "stranger@example.com")
    assert code == 1
    failed = [line.partition(":")[0] for line in lines if line.startswith("fail ")]
    assert failed == ["fail     you", f"fail     use of {ACCOUNT}"]
    assert "unknown  bucket gs://example-bucket: the answer is 403" in "\n".join(lines)


def test_roles_that_may_be_inherited_are_unknown(cloud):
    grant_roles(cloud, DIGITS, *POOLS)
    cloud.around.parent = "organizations/1"
    cloud.around.iam.revoke("projects/example-project", "roles/logging.logWriter")
    code, lines = doctor(cloud)
    assert code == 0
    (line,) = [each for each in lines if each.startswith("unknown")]
    assert "unless it comes from the project's folder or organization" in line
    assert "run `gcloud projects add-iam-policy-binding example-project" in line


def test_editors_have_the_roles(cloud):
    """The default account of Compute Engine is often an editor, and nothing else."""
    cloud.around.iam.grant("projects/example-project", "roles/editor", f"serviceAccount:{ACCOUNT}")
    cloud.around.iam.grant("buckets/example-bucket", "roles/storage.legacyBucketOwner", "projectEditor:example-project")
    code, lines = doctor(cloud)
    assert code == 0, lines
    assert f"pass     roles/aiplatform.user of {ACCOUNT}: is included in roles/editor" in lines
    bucket_role = (
        f"pass     roles/storage.objectUser of {ACCOUNT} on example-bucket: is included in roles/storage.legacyBucketOwner"
    )
    assert bucket_role in lines


def test_services_that_cannot_be_asked(cloud):
    grant_roles(cloud, DIGITS, *POOLS)
    cloud.around.services.remove("cloudresourcemanager.googleapis.com")
    code, lines = doctor(cloud)
    assert code == 0, lines
    assert lines[0] == (
        "unknown  project example-project: cloudresourcemanager.googleapis.com is not enabled, so it cannot be asked; "
        "run `gcloud services enable cloudresourcemanager.googleapis.com`"
    )
    assert f"unknown  roles/aiplatform.user of {ACCOUNT}: cloudresourcemanager.googleapis.com is not enabled" in "\n".join(
        lines
    )
    assert "pass     bucket gs://example-bucket: is in europe-west4" in lines


def test_resources_that_the_file_names(cloud, tmp_path):
    settings = {"encryption_spec_key_name": KEY, "tensorboard": TENSORBOARD, "reservation": RESERVATION, "network": NETWORK}
    file = write_with(tmp_path, **settings)
    file.write_text(file.read_text().replace("spot: true", "spot: false"))
    grant_roles(cloud, file, *POOLS)
    project = cloud.around
    project.reservations[RESERVATION] = {"name": "mine"}
    _, lines = doctor(cloud, file)
    failed = [line for line in lines if line.startswith("fail ")]
    assert failed == [
        f"fail     encryption_spec_key_name {KEY}: does not exist; correct targets.vertex."
        "encryption_spec_key_name, or create it",
        f"fail     tensorboard {TENSORBOARD}: does not exist; correct targets.vertex.tensorboard, or create it",
        f"fail     reservation {RESERVATION}: does not let Vertex AI take machines from it; create one with "
        "`--reservation-sharing-policy=ALLOW_ALL`",
        f"fail     network {NETWORK}: is not peered with Google's services; run `gcloud services vpc-peerings connect "
        "--service=servicenetworking.googleapis.com`, or leave it out",
    ]
    project.resources |= {KEY, TENSORBOARD}
    project.reservations[RESERVATION]["reservationSharingPolicy"] = {"serviceShareType": "ALLOW_ALL"}
    project.networks.add(NETWORK)
    code, lines = doctor(cloud, file)
    assert code == 0, lines
    project.buckets["example-bucket"] = "US"
    assert any("a TensorBoard instance needs it in europe-west4" in line for line in doctor(cloud, file)[1])


def test_services_that_do_not_answer(cloud, monkeypatch):
    monkeypatch.setattr(rest, "SECONDS", 0.2)
    cloud.unreachable(60)
    code, lines = doctor(cloud)
    assert code == 0
    assert {line.split()[0] for line in lines} == {"unknown"}
    assert lines[0].startswith("unknown  project example-project: there is no answer")


def test_no_credentials(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(ConfigurationError, match="run `gcloud auth application-default login`"):
        rest.make_session()
    result = run_command("doctor", DIGITS, "--target", "vertex")
    assert result.exit_code == 2
    assert result.output.startswith("Error: there are no credentials for Google Cloud (")


@pytest.mark.parametrize("target", ["local", "kubeflow"])
def test_other_targets(target, request):
    file = DIGITS.with_name("pipeline.yaml" if target == "local" else "kubeflow.yaml")
    result = run_command("doctor", file, "--target", target)
    assert result.exit_code == 2
    assert f"--target: doctor has no checks of {target}, only of vertex" in result.output


@pytest.mark.parametrize(
    "words",
    [
        POOLS,
        ("-p", "strategy=parameter_server", "-p", "num_workers=2", "-p", "num_parameter_servers=3"),
        ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2", "-p", "num_evaluators=1"),
    ],
)
def test_quotas_are_those_that_the_service_counts(words):
    parameters = loader.parse_parameters([word for word in words if word != "-p"])
    job = VertexTarget(loader.override(loader.load(DIGITS), parameters)).launches()
    assert job is not None
    message = json_format.ParseDict(job, types.CustomJob.pb(types.CustomJob()))
    assert quota_checks.find_demand(job) == vertex_quotas.demand(types.CustomJob.wrap(message))


@pytest.mark.parametrize(("strategy", "kind"), [("SPOT", "preemptible_"), ("FLEX_START", "preemptible_"), ("STANDARD", "")])
def test_quotas_of_scheduling_strategies(strategy, kind):
    machine = {"machine_type": "a3-highgpu-8g", "accelerator_type": "NVIDIA_H100_80GB", "accelerator_count": 8}
    pools = [{"machine_spec": machine, "replica_count": 2}]
    demand = quota_checks.find_demand({"job_spec": {"worker_pool_specs": pools, "scheduling": {"strategy": strategy}}})
    assert demand == {f"aiplatform.googleapis.com/custom_model_training_{kind}nvidia_h100_gpus": 16}


@pytest.mark.parametrize(
    ("name", "metric", "amount"),
    [
        ("nvidia-tesla-v100", "nvidia_v100_gpus", 1),
        ("nvidia-h100-mega-80gb", "nvidia_h100_mega_gpus", 8),
        ("nvidia-h200-141gb", "nvidia_h200_gpus", 8),
        ("tpu-v3-device", "tpu_v3", 8),  # cores
    ],
)
def test_quotas_have_names_of_their_own(name, metric, amount):
    row = accelerators.ACCELERATORS[name]
    count, types = next(iter(row.machines.items()))
    machine = accelerators.make_machine_spec(name, count, next(iter(row.topologies), ""), types[0])
    demand = quota_checks.find_demand({"job_spec": {"worker_pool_specs": [{"machine_spec": machine, "replica_count": 1}]}})
    assert demand[f"aiplatform.googleapis.com/custom_model_training_{metric}"] == amount


def test_quotas_of_tpus_and_steps():
    pool = {"machine_spec": {"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "2x4"}, "replica_count": 1}
    demand = quota_checks.find_demand({"job_spec": {"worker_pool_specs": [pool, {}]}})
    assert demand == {"aiplatform.googleapis.com/custom_model_training_tpu_v5e": 8}
    accelerator = {"type": "NVIDIA_TESLA_T4", "count": "2"}
    metric = "aiplatform.googleapis.com/custom_model_training_nvidia_t4_gpus"
    assert quota_checks.find_step_demand(accelerator) == {metric: 2}


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("us-docker.pkg.dev/p/team/digits:1", ("p", "us", "team", "digits", "1")),
        ("us-docker.pkg.dev/p/team/nested/digits", ("p", "us", "team", "nested/digits", "latest")),
        ("us-docker.pkg.dev/p/team/digits:1@sha256:ab", ("p", "us", "team", "digits", "sha256:ab")),
        ("eu.gcr.io/p/digits:1", ("p", "europe", "eu.gcr.io", "digits", "1")),
        ("gcr.io/p/digits", ("p", "us", "gcr.io", "digits", "latest")),
    ],
)
def test_names_of_images(image, parts):
    parsed = image_name.parse(image)
    assert parsed is not None
    assert (parsed.project, parsed.location, parsed.repository, parsed.package, parsed.version) == parts
    assert image_name.parse(f"docker.io/{image}") is None

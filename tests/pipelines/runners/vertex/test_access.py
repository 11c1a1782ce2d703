"""Tests that the printed roles are those that a run uses, and no others.

The stand-in of Vertex AI denies what no role allows. What steps do with files in
buckets is read from the source code, since files are local in tests.
"""

import ast
import threading

import pytest
from running import wait_until
from vertex_api import VertexApi
from vertex_example import ACCOUNT, DIGITS, grant_roles, run_command
from vertex_iam import ROLES

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.custom_job import client as custom_job_client
from tfx_distribute.components.launchers.custom_job import launcher as custom_job_launcher
from tfx_distribute.components.launchers.custom_job.spec import make_spec
from tfx_distribute.pipelines.runners.vertex import trainer_settings
from tfx_distribute.pipelines.runners.vertex.target import VertexTarget
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

REPOSITORY = DIGITS.parents[2]
PERSON = "person@example.com"
POOLS = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")

# Functions of `tf.io.gfile` and TFX's `fileio` -> permissions in Cloud Storage. Source:
# gcs_file_system.cc of TensorFlow, whose requests are listed with their permissions at
# https://cloud.google.com/storage/docs/access-control/iam-json
_LOOK = {"storage.objects.get", "storage.objects.list", "storage.buckets.get"}
_FILE_OPERATIONS = {
    "GFile": {"storage.objects.get", "storage.objects.create", "storage.objects.delete"},  # a write replaces
    "open": {"storage.objects.get", "storage.objects.create", "storage.objects.delete"},
    "copy": {"storage.objects.get", "storage.objects.create", "storage.objects.delete"},
    "rename": {"storage.objects.get", "storage.objects.create", "storage.objects.delete"},
    "remove": {"storage.objects.get", "storage.objects.delete"},
    "rmtree": _LOOK | {"storage.objects.delete"},
    "makedirs": _LOOK | {"storage.objects.create"},
    "mkdir": _LOOK | {"storage.objects.create"},
    **dict.fromkeys(("exists", "isdir", "glob", "listdir", "walk", "stat"), _LOOK),
}


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(custom_job_launcher, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retry, "TIMEOUT_SECONDS", 1.0)


def train(error_file: str, script: str = "pass") -> None:
    """Trains as the Trainer's step does, in the pools of the example."""
    spec = loader.override(loader.load(DIGITS), loader.parse_parameters([word for word in POOLS if word != "-p"]))
    target = VertexTarget(spec)
    launcher = trainer_settings.launcher(spec.name, spec.resources, target.settings)
    job = make_spec("digits-1", "gs://example-bucket/job.json", spec.trainer.parameters.distribution, {}, launcher)
    for pool in job["job_spec"]["worker_pool_specs"]:
        if pool:
            pool["container_spec"]["command"] = ["python", "-c", script]
    custom_job_launcher.launch(job, launcher, 0, error_file)


def storage_permissions() -> set[str]:
    """Returns what the code of steps and of training processes does with files."""
    operations = set()
    for package in ("components", "trainer_module"):
        for file in (REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Attribute):
                    owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                    if owner in ("gfile", "fileio"):
                        operations.add(node.attr)
    operations -= {"NotFoundError"}
    assert {"rename", "GFile"} <= operations
    return set().union(*(_FILE_OPERATIONS[operation] for operation in operations))


def test_the_printed_roles_are_those_that_a_run_uses(cloud, tmp_path):
    grant_roles(cloud, DIGITS, *POOLS)
    with cloud.connected("grpc", PERSON):
        result = run_command("submit", DIGITS, "--target", "vertex", *POOLS)
        assert result.exit_code == 0, result.output
    with cloud.connected("grpc", ACCOUNT):
        train_and_cancel(cloud, str(tmp_path / "error.json"))
        train(str(tmp_path / "error.json"))
    used = set(cloud.around.iam.used)
    assert {permission.rpartition(".")[2] for account, permission, _ in used if account == ACCOUNT} >= {
        "create",
        "get",
        "list",
        "cancel",
        "actAs",
    }
    used |= {(ACCOUNT, permission, "buckets/example-bucket") for permission in storage_permissions()}
    # What containers print: https://cloud.google.com/vertex-ai/docs/pipelines/logging
    used |= {(ACCOUNT, "logging.logEntries.create", "projects/example-project")}
    denied = {each for each in used if not cloud.around.iam.allows(*each)}
    # The checks of `submit` ask for more than a person may see.
    assert not {each for each in denied if not each[1].endswith("getIamPolicy")}
    for resource, roles in cloud.around.iam.policies.items():
        for role, members in roles.items():
            for account in (member.partition(":")[2] for member in members):
                permissions = {permission for who, permission, what in used if (who, what) == (account, resource)}
                assert permissions & ROLES[role], f"{account} does not need {role} on {resource}"


def train_and_cancel(cloud: VertexApi, error_file: str) -> None:
    """Cancels a training, as a step does that is to end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            train(error_file, "import time; time.sleep(60)")
        except TrainingError as error:
            errors.append(error)

    trainer = threading.Thread(target=run, daemon=True)
    trainer.start()
    wait_until(lambda: any(job.state.name == "JOB_STATE_RUNNING" for job in cloud.all("customJobs")), 30)
    custom_job_client.CustomJobClient("example-project", "europe-west4").cancel("digits-1")
    trainer.join(30)
    assert "was cancelled" in str(errors[0])


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("projects/example-project", "give it the role roles/aiplatform.user"),
        (f"serviceAccounts/{ACCOUNT}", "that the service account of this step may act as it"),
    ],
)
def test_a_step_without_a_role(cloud, tmp_path, missing, message):
    grant_roles(cloud, DIGITS, *POOLS)
    for role in list(cloud.around.iam.policies[missing]):
        cloud.around.iam.revoke(missing, role)
    with cloud.connected("grpc", ACCOUNT), pytest.raises(ConfigurationError, match=message):
        train(str(tmp_path / "error.json"))

"""Lists the roles that a pipeline needs on Vertex AI, as `gcloud` commands.

Pure functions. Sources, read in November 2026:
https://cloud.google.com/vertex-ai/docs/pipelines/configure-project,
https://cloud.google.com/vertex-ai/docs/general/custom-service-account,
https://cloud.google.com/vertex-ai/docs/general/cmek and
https://cloud.google.com/dataflow/docs/concepts/security-and-permissions.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tfx_distribute.pipelines.runners.vertex import image_name, storage_places
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec

NUMBER = "$PROJECT_NUMBER"
"""Stands for the number of the project, which is not known here."""
SUBMITTER = "$SUBMITTER"
"""Stands for the member that submits pipelines, such as `user:EMAIL`."""

PROJECT: Final = "project"
BUCKET: Final = "bucket"
ACCOUNT: Final = "service account"
REPOSITORY: Final = "repository"
KEY: Final = "key"


@dataclass(frozen=True)
class Grant:
    """A role of a member on a resource.

    Attributes:
      kind: Kind of the resource.
      resource: Name of the resource.
      role: The role.
      member: The member, such as `serviceAccount:EMAIL`.
      reason: Why it needs the role.
    """

    kind: Literal["project", "bucket", "service account", "repository", "key"]
    resource: str
    role: str
    member: str
    reason: str


def run_account(settings: VertexSettings) -> str:
    """Returns the service account that steps act as."""
    return settings.service_account or f"{NUMBER}-compute@developer.gserviceaccount.com"


def find_grants(spec: PipelineSpec, settings: VertexSettings, trains_remotely: bool) -> tuple[Grant, ...]:
    """Returns the roles that a pipeline needs, and no others.

    Args:
      spec: The pipeline.
      settings: Settings of Vertex AI, with the project.
      trains_remotely: True if the Trainer's step creates a CustomJob.
    """
    return tuple(
        dict.fromkeys(
            (
                *_submitter_grants(settings),
                *_step_grants(settings, trains_remotely),
                *_bucket_grants(spec, settings),
                *_dataflow_grants(spec, settings),
                *_agent_grants(settings),
            )
        )
    )


def _submitter_grants(settings: VertexSettings) -> Iterator[Grant]:
    project, account = str(settings.project), run_account(settings)
    yield Grant(PROJECT, project, "roles/aiplatform.user", SUBMITTER, "you create the pipeline job and follow it")
    yield Grant(ACCOUNT, account, "roles/iam.serviceAccountUser", SUBMITTER, "the run acts as this account")
    bucket = storage_places.bucket_of(settings.pipeline_root)
    yield Grant(BUCKET, bucket, "roles/storage.legacyBucketReader", SUBMITTER, "submit looks for the bucket")


def _step_grants(settings: VertexSettings, trains_remotely: bool) -> Iterator[Grant]:
    project, account = str(settings.project), run_account(settings)
    member = f"serviceAccount:{account}"
    creates = ", and create the CustomJob of the training and follow it" if trains_remotely else ""
    yield Grant(PROJECT, project, "roles/aiplatform.user", member, f"steps report to Vertex AI{creates}")
    yield Grant(PROJECT, project, "roles/logging.logWriter", member, "what steps and training processes print is kept")
    if trains_remotely and settings.service_account:
        reason = "the Trainer's step creates a CustomJob that acts as the same account"
        yield Grant(ACCOUNT, account, "roles/iam.serviceAccountUser", member, reason)


def _bucket_grants(spec: PipelineSpec, settings: VertexSettings) -> Iterator[Grant]:
    member = f"serviceAccount:{run_account(settings)}"
    root = storage_places.bucket_of(settings.pipeline_root)
    for bucket, is_written in storage_places.find_buckets(spec, settings).items():
        if settings.tensorboard and bucket == root:
            yield Grant(BUCKET, bucket, "roles/storage.admin", member, "the TensorBoard instance reads the logs of training")
            continue
        role = "roles/storage.objectUser" if is_written else "roles/storage.objectViewer"
        reason = "the run writes here, and renames, which deletes" if is_written else "the run reads from here"
        yield Grant(BUCKET, bucket, role, member, reason)
        yield Grant(BUCKET, bucket, "roles/storage.legacyBucketReader", member, "TensorFlow looks for the bucket itself")


def _dataflow_grants(spec: PipelineSpec, settings: VertexSettings) -> Iterator[Grant]:
    if spec.beam.runner != "dataflow":
        return
    project = spec.beam.project or str(settings.project)
    member = f"serviceAccount:{run_account(settings)}"
    worker = spec.beam.service_account_email or f"{NUMBER}-compute@developer.gserviceaccount.com"
    yield Grant(PROJECT, project, "roles/dataflow.developer", member, "steps create Dataflow jobs")
    yield Grant(ACCOUNT, worker, "roles/iam.serviceAccountUser", member, "Dataflow's machines act as this account")
    worker_member = f"serviceAccount:{worker}"
    yield Grant(PROJECT, project, "roles/dataflow.worker", worker_member, "Dataflow's machines take their work")
    for bucket, is_written in storage_places.find_buckets(spec, settings).items():
        role = "roles/storage.objectUser" if is_written else "roles/storage.objectViewer"
        yield Grant(BUCKET, bucket, role, worker_member, "Dataflow's machines read and write data")
        yield Grant(
            BUCKET, bucket, "roles/storage.legacyBucketReader", worker_member, "TensorFlow looks for the bucket itself"
        )
    if image := image_name.parse(spec.beam.sdk_container_image or settings.image):
        reason = "Dataflow's machines pull their image"
        yield Grant(REPOSITORY, image.repository_name, "roles/artifactregistry.reader", worker_member, reason)


def _agent_grants(settings: VertexSettings) -> Iterator[Grant]:
    """Yields the roles that Google's own accounts lack outside of the project."""
    image = image_name.parse(settings.image)
    if image and image.project != settings.project:
        agent = f"serviceAccount:service-{NUMBER}@gcp-sa-aiplatform-cc.iam.gserviceaccount.com"
        reason = "Vertex AI pulls images with its own account, also for runs with a service account"
        yield Grant(REPOSITORY, image.repository_name, "roles/artifactregistry.reader", agent, reason)
    if settings.encryption_spec_key_name:
        agent = f"serviceAccount:service-{NUMBER}@gcp-sa-aiplatform.iam.gserviceaccount.com"
        role = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
        yield Grant(KEY, settings.encryption_spec_key_name, role, agent, "Vertex AI encrypts what it stores")


def make_command(grant: Grant) -> str:
    """Returns the `gcloud` command that grants a role; it can be run again."""
    names = grant.resource.split("/")
    if grant.kind == PROJECT:
        words = ["projects", "add-iam-policy-binding", grant.resource, "--condition=None"]
    elif grant.kind == BUCKET:
        words = ["storage", "buckets", "add-iam-policy-binding", f"gs://{grant.resource}"]
    elif grant.kind == ACCOUNT:
        words = ["iam", "service-accounts", "add-iam-policy-binding", grant.resource]
    elif grant.kind == REPOSITORY:
        words = [
            "artifacts",
            "repositories",
            "add-iam-policy-binding",
            names[5],
            f"--project={names[1]}",
            f"--location={names[3]}",
        ]
    else:
        words = ["kms", "keys", "add-iam-policy-binding", names[7], f"--project={names[1]}", f"--location={names[3]}"]
        words.append(f"--keyring={names[5]}")
    return " ".join(map(_quote, ["gcloud", *words, f"--member={grant.member}", f"--role={grant.role}"]))


def make_script(name: str, project: str, grants: tuple[Grant, ...]) -> str:
    """Returns a shell script with the commands of all grants, each with its reason.

    Args:
      name: Name of the pipeline.
      project: Google Cloud project.
      grants: The grants.
    """
    commands = [f"# {grant.reason}\n{make_command(grant)}\n" for grant in grants]
    lines = [f"# Roles for {name} on Vertex AI. Read them, then run them with a shell; they can be run again.\n"]
    if any(SUBMITTER in command for command in commands):
        lines.append('SUBMITTER="user:$(gcloud config get-value account)"  # or another one who submits\n')
    if any(NUMBER in command for command in commands):
        lines.append(
            f"PROJECT_NUMBER=\"$(gcloud projects describe {shlex.quote(project)} --format='value(projectNumber)')\"\n"
        )
    return "".join((*lines, *commands))


def _quote(word: str) -> str:
    """Quotes a word for a shell, in which our variables are replaced."""
    return f'"{word}"' if NUMBER in word or SUBMITTER in word else shlex.quote(word)

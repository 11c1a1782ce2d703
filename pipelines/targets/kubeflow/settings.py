"""Defines the settings of Kubeflow Pipelines: `targets.kubeflow` of a pipeline file."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tfx_distribute.components.spec_model import SpecModel
from tfx_distribute.pipelines.targets.settings import RemoteSettings

# Types of values that Kubernetes checks, to find mistakes before it does. Sources:
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names and
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = rf"{_PART}(\.{_PART})*"
_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

Name = Annotated[str, Field(pattern=f"^{_NAME}$", max_length=253)]
Namespace = Annotated[str, Field(pattern=f"^{_PART}$", max_length=63)]
# The name of an object that is the value of a label, too.
QueueName = Annotated[str, Field(pattern=f"^{_NAME}$", max_length=63)]
Key = Annotated[str, Field(pattern=f"^({_NAME}/)?{_LABEL}$")]
LabelValue = Annotated[str, Field(pattern=f"^({_LABEL})?$")]
Variable = Annotated[str, Field(pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
SecretKey = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$")]
Path = Annotated[str, Field(pattern=r"^/[^/:][^:]*$")]


class Volume(SpecModel):
    """A persistent volume claim that all steps and training processes mount."""

    claim: Name
    """Name of the claim. If training has several pods, its access mode must be
    ReadWriteMany."""
    mount_path: Path
    """Folder where it is mounted."""


class Secret(SpecModel):
    """A Kubernetes secret that sets environment variables of steps and training."""

    name: Name
    """Name of the secret."""
    env: dict[Variable, SecretKey] = Field(min_length=1)
    """Environment variable -> key of the secret."""


class SecurityContext(SpecModel):
    """User and group of pods. Pods of a training run as the user of the Trainer's step.

    What is written here is written for steps too, which takes Kubeflow Pipelines 2.16
    or later; `fs_group` is for the pods of a training only.
    """

    NULLABLE: ClassVar[tuple[str, ...]] = ("fs_group",)

    run_as_user: int | None = Field(None, ge=0)
    """User id; default that of the image."""
    run_as_group: int | None = Field(None, ge=0)
    """Group id; default that of the image."""
    run_as_non_root: bool | None = None
    """Refuses to run as root. Default: true for pods of a training, the installation's
    for steps."""
    fs_group: int | None = Field(1000, ge=0)
    """Group that owns the volumes of a training's pods, where the kind of volume
    allows that; null to leave volumes as they are."""


class KubeflowSettings(RemoteSettings):
    """Settings of Kubeflow Pipelines.

    ```python
    settings = KubeflowSettings(
        image="registry.example.com/team/digits:1", pipeline_root="gs://bucket/root"
    )
    ```
    """

    TARGET: ClassVar[str] = "kubeflow"

    pipeline_root: str = Field(pattern=r"^(gs|s3|minio)://.")
    """Address that artifacts are written under. In an installation for several users,
    `minio://BUCKET/private-artifacts/NAMESPACE/v2`, or below `artifacts`."""
    host: str | None = None
    """Address of the Kubeflow Pipelines API; default what `kfp` finds."""
    namespace: Namespace | None = None
    """Kubernetes namespace of runs."""
    experiment: str | None = None
    """Experiment of runs; default the installation's."""
    service_account: Name | None = None
    """Kubernetes service account of runs; default the installation's."""
    platform: Literal["kubernetes", "gke"] = "kubernetes"
    """Platform that decides how accelerators are named; `gke` is Google Kubernetes
    Engine."""
    training: Literal["auto", "step", "jobset", "tfjob"] = "auto"
    """Where training runs: `step` is the Trainer's own step, `jobset` the pods of a
    JobSet, `tfjob` those of a TFJob, and `auto` the step if training is one process,
    else a JobSet where the cluster has them, or a TFJob. With a `queue`, `auto` takes
    what Kueue manages."""
    training_dir: str | None = Field(None, pattern=r"^(gs://.|/[^/])")
    """Folder that all pods of a training can reach, for its inputs, outputs and
    checkpoints: below the `mount_path` of a volume, or a gs:// address. Default: below
    a gs:// `pipeline_root`."""
    volumes: list[Volume] = Field(default_factory=list)
    """Volumes."""
    secrets: list[Secret] = Field(default_factory=list)
    """Secrets."""
    image_pull_secrets: list[Name] = Field(default_factory=list)
    """Secrets for pulling the image."""
    labels: dict[Key, LabelValue] = Field(default_factory=dict)
    """Labels of all pods, and of the TFJob or JobSet."""
    annotations: dict[Key, str] = Field(default_factory=dict)
    """Annotations of all pods, such as those that autoscalers or meshes read."""
    queue: QueueName | None = None
    """Local queue of Kueue that admits training."""
    active_deadline_seconds: int | None = Field(None, ge=1)
    """Seconds after which a training in pods has failed. Waiting in a queue does not
    count."""
    start_timeout_seconds: int = Field(3600, ge=0)
    """Seconds after which a training in pods fails if not all of them have started; 0
    for no limit. Waiting in a queue does not count."""
    security_context: SecurityContext = Field(default_factory=SecurityContext)
    """User and group of pods."""
    metrics_port: int | None = Field(None, ge=1024, le=65535)
    """Port of each pod of a training that serves its progress as Prometheus text, at
    `/metrics`, to everyone who can connect; the pods are annotated for it. No effect
    when training runs in the Trainer's step. Default none."""
    metadata_service: str = Field("metadata-grpc-service.kubeflow:8080", pattern=r"^[^:/]+:\d+$")
    """`host:port` of Kubeflow Pipelines' metadata store, as pods reach it."""
    api_service: str = Field("ml-pipeline.kubeflow:8888", pattern=r"^[^:/]+:\d+$")
    """`host:port` of the API of Kubeflow Pipelines, as pods reach it. The step of
    `notify` asks there how a run ended."""

    def checkpoint_dir(self, name: str) -> str | None:
        """Returns the folder of checkpoints, below `training_dir` if there is one."""
        return f"{self.training_dir.rstrip('/')}/checkpoints" if self.training_dir else super().checkpoint_dir(name)

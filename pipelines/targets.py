"""What a pipeline file says of each place that the pipeline runs in."""

from typing import Literal

from pydantic import Field

from tfx_distribute.pipelines.models import Model


class LocalTarget(Model):
    """What is specific to runs on this machine."""

    root: str | None = None
    """Folder for artifacts, metadata, logs and models; default `runs/<name>` in the working folder."""
    base_port: int = Field(0, ge=0, le=65000)
    """First of the consecutive ports that training processes listen on; 0 for any free ones."""


class Volume(Model):
    """A persistent volume claim, which all steps and training processes have."""

    claim: str
    """Name of the claim. Where training has several pods, its access mode has to be ReadWriteMany."""
    mount_path: str = Field(pattern=r"^/[^/]")
    """Folder that it is mounted as."""


class Secret(Model):
    """A Kubernetes secret, whose values all steps and training processes have in their environment."""

    name: str
    """Name of the secret."""
    env: dict[str, str] = Field(min_length=1)
    """Environment variable -> key of the secret."""


class GangScheduling(Model):
    """How a scheduler starts all pods of a training or none, with Volcano or the scheduler plugins."""

    min_available: int | None = Field(None, ge=1)
    """Pods that have to fit in at once; default all."""
    queue: str | None = None
    """Queue of Volcano."""
    priority_class: str | None = None
    """Priority class of the pods."""
    schedule_timeout_seconds: int | None = Field(None, ge=0)
    """Seconds to wait for room."""


class KubeflowTarget(Model):
    """What is specific to Kubeflow Pipelines."""

    image: str
    """Container image of all steps and training processes; it holds this package and the pipeline's module."""
    pipeline_root: str = Field(pattern=r"^(gs|s3|minio)://.")
    """Address that artifacts are written under."""
    host: str | None = None
    """Address of the Kubeflow Pipelines API; default what `kfp` finds."""
    namespace: str | None = None
    """Kubernetes namespace of runs."""
    experiment: str | None = None
    """Experiment of runs; default the installation's."""
    service_account: str | None = None
    """Kubernetes service account of runs; default the installation's."""
    platform: Literal["kubernetes", "gke"] = "kubernetes"
    """What names its nodes: `gke` is Google Kubernetes Engine."""
    training: Literal["auto", "step", "tfjob"] = "auto"
    """Where training runs: in the Trainer's own step, as pods of a TFJob, or `auto`: in the step if it is one process."""
    training_dir: str | None = Field(None, pattern=r"^(gs://.|/[^/])")
    """Folder that all pods of a training reach, for what it reads and writes, and for saved states: below the `mount_path`
    of a volume, or a gs:// address. Default: below a gs:// `pipeline_root`."""
    volumes: list[Volume] = Field(default_factory=list)
    """Volumes."""
    secrets: list[Secret] = Field(default_factory=list)
    """Secrets."""
    image_pull_secrets: list[str] = Field(default_factory=list)
    """Secrets that the image is pulled with."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of all pods, and of the TFJob."""
    queue: str | None = None
    """Local queue of Kueue that admits training."""
    gang_scheduling: GangScheduling | None = None
    """Whether pods of a TFJob start together, and how."""
    active_deadline_seconds: int | None = Field(None, ge=1)
    """Seconds after which a TFJob has failed."""
    metadata_service: str = Field("metadata-grpc-service.kubeflow:8080", pattern=r"^[^:/]+:\d+$")
    """`host:port` of Kubeflow Pipelines' metadata store, as its pods reach it."""


class VertexTarget(Model):
    """What is specific to Vertex AI Pipelines."""

    image: str
    """Container image of all steps."""
    pipeline_root: str = Field(pattern=r"^gs://")
    """Address that artifacts are written under."""
    project: str
    """Google Cloud project."""
    region: str
    """Google Cloud region."""
    service_account: str | None = None
    """Service account of runs."""
    network: str | None = None
    """Network that runs are peered with."""


class Targets(Model):
    """What is specific to each place that a pipeline runs in."""

    local: LocalTarget = LocalTarget()
    """This machine."""
    kubeflow: KubeflowTarget | None = None
    """Kubeflow Pipelines."""
    vertex: VertexTarget | None = None
    """Vertex AI."""

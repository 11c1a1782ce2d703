"""What a pipeline file says of each place that the pipeline runs in."""

from typing import Annotated, Literal

from pydantic import Field

from tfx_distribute.pipelines.spec.base import SpecModel

Label = Annotated[str, Field(pattern=r"^[a-z][-_a-z0-9]{0,62}$")]
LabelValue = Annotated[str, Field(pattern=r"^[-_a-z0-9]{0,63}$")]


class LocalTarget(SpecModel):
    """What is specific to runs on this machine."""

    root: str | None = None
    """Folder for artifacts, metadata, logs and models; default `runs/<name>` in the working folder."""
    base_port: int = Field(0, ge=0, le=65000)
    """First of the consecutive ports that training processes listen on; 0 for any free ones."""


class Volume(SpecModel):
    """A persistent volume claim, which all steps and training processes have."""

    claim: str
    """Name of the claim. Where training has several pods, its access mode has to be ReadWriteMany."""
    mount_path: str = Field(pattern=r"^/[^/]")
    """Folder that it is mounted as."""


class Secret(SpecModel):
    """A Kubernetes secret, whose values all steps and training processes have in their environment."""

    name: str
    """Name of the secret."""
    env: dict[str, str] = Field(min_length=1)
    """Environment variable -> key of the secret."""


class GangScheduling(SpecModel):
    """How a scheduler starts all pods of a training or none, with Volcano or the scheduler plugins."""

    min_available: int | None = Field(None, ge=1)
    """Pods that have to fit in at once; default all."""
    queue: str | None = None
    """Queue of Volcano."""
    priority_class: str | None = None
    """Priority class of the pods."""
    schedule_timeout_seconds: int | None = Field(None, ge=0)
    """Seconds to wait for room."""


class KubeflowTarget(SpecModel):
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


class VertexTarget(SpecModel):
    """What is specific to Vertex AI Pipelines. Names are those of the `google-cloud-aiplatform` SDK."""

    image: str
    """Container image of all steps and training processes; it holds this package and the pipeline's module."""
    pipeline_root: str = Field(pattern=r"^gs://.")
    """Address that artifacts are written under."""
    project: str | None = Field(None, pattern=r"^[a-z0-9][-a-z0-9.:]{2,61}[a-z0-9]$")
    """Google Cloud project; default that of `submit --project`."""
    region: str | None = Field(None, pattern=r"^[a-z]+-[a-z]+\d+$")
    """Google Cloud region; default that of `submit --region`."""
    service_account: str | None = None
    """Service account of steps and training processes; default for steps the project's own of Compute Engine, for a
    CustomJob Vertex AI's service agent for custom code."""
    network: str | None = Field(None, pattern=r"^projects/[^/]+/global/networks/[^/]+$")
    """Network that steps and training are peered with, `projects/NUMBER/global/networks/NAME`."""
    encryption_spec_key_name: str | None = Field(
        None, pattern=r"^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$"
    )
    """Cloud KMS key of all that is kept."""
    labels: dict[Label, LabelValue] = Field(default_factory=dict, max_length=60)
    """Labels of the pipeline job and of the CustomJob."""
    training: Literal["auto", "step", "custom_job"] = "auto"
    """Where training runs: in the Trainer's own step, in the worker pools of a CustomJob, or `auto`: in the step if it is
    one process on a machine that a step can have."""
    boot_disk_type: Literal["pd-ssd", "pd-standard", "hyperdisk-balanced"] | None = None
    """Kind of disk of each training machine; default that of Vertex AI."""
    boot_disk_size_gb: int | None = Field(None, ge=100, le=64000)
    """Its size; default 100."""
    timeout: int | None = Field(None, ge=1)
    """Seconds that training may take; default seven days."""
    restart_job_on_worker_restart: bool = False
    """Whether all training machines start again where one does, and not that one alone."""
    tensorboard: str | None = Field(None, pattern=r"^projects/[^/]+/locations/[^/]+/tensorboards/[^/]+$")
    """Vertex AI TensorBoard instance that training logs go to as well; needs `service_account`."""
    reservation: str | None = Field(None, pattern=r"^projects/[^/]+/zones/[^/]+/reservations/[^/]+$")
    """Compute Engine reservation that training machines are taken from."""
    reduction_server_replica_count: int = Field(1, ge=1)
    """Reduction servers, where `all_reduce` is `reduction_server`."""
    reduction_server_machine_type: str = "n1-highcpu-16"
    """Machine of each of them; what it has to have is network."""


class Targets(SpecModel):
    """What is specific to each place that a pipeline runs in."""

    local: LocalTarget = LocalTarget()
    """This machine."""
    kubeflow: KubeflowTarget | None = None
    """Kubeflow Pipelines."""
    vertex: VertexTarget | None = None
    """Vertex AI."""

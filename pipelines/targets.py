"""What a pipeline file says of each place that the pipeline runs in."""

from pydantic import Field

from tfx_distribute.pipelines.models import Model


class LocalTarget(Model):
    """What is specific to runs on this machine."""

    root: str | None = None
    """Folder for artifacts, metadata, logs and models; default `runs/<name>` in the working folder."""
    base_port: int = Field(0, ge=0, le=65000)
    """First of the consecutive ports that training processes listen on; 0 for any free ones."""


class KubeflowTarget(Model):
    """What is specific to Kubeflow Pipelines."""

    image: str
    """Container image of all steps."""
    pipeline_root: str = Field(pattern=r"^(gs|s3|minio)://")
    """Address that artifacts are written under."""
    namespace: str | None = None
    """Kubernetes namespace of runs."""
    service_account: str | None = None
    """Kubernetes service account of runs."""


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

"""Defines the settings of Vertex AI: `targets.vertex` of a pipeline file."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tfx_distribute.pipelines.targets.settings import RemoteSettings

Label = Annotated[str, Field(pattern=r"^[a-z][-_a-z0-9]{0,62}$")]
LabelValue = Annotated[str, Field(pattern=r"^[-_a-z0-9]{0,63}$")]


class VertexSettings(RemoteSettings):
    """Settings of Vertex AI. Names are those of the `google-cloud-aiplatform` SDK.

    ```python
    settings = VertexSettings(
        image="europe-west4-docker.pkg.dev/example-project/team/digits:1",
        pipeline_root="gs://example-bucket/pipelines",
        project="example-project",
        region="europe-west4",
    )
    ```
    """

    TARGET: ClassVar[str] = "vertex"

    pipeline_root: str = Field(pattern=r"^gs://.")
    """Address that artifacts are written under."""
    project: str | None = Field(None, pattern=r"^[a-z0-9][-a-z0-9.:]{2,61}[a-z0-9]$")
    """Google Cloud project; default that of `submit --project`."""
    region: str | None = Field(None, pattern=r"^[a-z]+-[a-z]+\d+$")
    """Google Cloud region; default that of `submit --region`."""
    service_account: str | None = None
    """Service account of steps and training processes. Default: for steps, the
    project's Compute Engine account; for a CustomJob, Vertex AI's service agent for
    custom code."""
    network: str | None = Field(None, pattern=r"^projects/[^/]+/global/networks/[^/]+$")
    """Network that steps and training are peered with:
    `projects/NUMBER/global/networks/NAME`, with the project's number."""
    psc_interface_config: dict[str, Any] = Field(default_factory=dict)
    """Private Service Connect interface of steps and training, in place of a peered
    `network`: the API's message `PscInterfaceConfig`, such as
    `{network_attachment: NAME}`."""
    encryption_spec_key_name: str | None = Field(
        None, pattern=r"^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$"
    )
    """Cloud KMS key that encrypts everything stored."""
    labels: dict[Label, LabelValue] = Field(default_factory=dict, max_length=60)
    """Labels of the pipeline job and of the CustomJob."""
    training: Literal["auto", "step", "custom_job"] = "auto"
    """Where training runs: `step` is the Trainer's own step, `custom_job` the worker
    pools of a CustomJob, and `auto` the step if training is one process on a machine
    that a step can have."""
    custom_job: dict[str, Any] = Field(default_factory=dict)
    """Fields of the API's `CustomJobSpec` for training, such as
    `{scheduling: {strategy: FLEX_START, timeout: 86400s}}` or `{tensorboard: NAME}`."""
    worker_pool: dict[str, Any] = Field(default_factory=dict)
    """Fields of the API's `WorkerPoolSpec` for the machines of a CustomJob, such as
    `{disk_spec: {boot_disk_size_gb: 200}}`. Its `machine_spec`, such as a reservation,
    is not for parameter servers."""
    reduction_server: dict[str, Any] = Field(default_factory=dict)
    """The same for reduction servers, used if `all_reduce` is `reduction_server`, such
    as `{replica_count: 4}`; default one `n1-highcpu-16`."""

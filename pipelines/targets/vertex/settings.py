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
    boot_disk_type: Literal["pd-ssd", "pd-standard", "hyperdisk-balanced"] | None = None
    """Disk type of training machines; N4 and H200 need `hyperdisk-balanced`."""
    boot_disk_size_gb: int | None = Field(None, ge=100, le=64000)
    """Disk size of training machines, in GB; default 100."""
    scheduling_strategy: Literal["STANDARD", "FLEX_START"] | None = None
    """How Vertex AI gets the training machines: `STANDARD`, or `FLEX_START` to wait
    until all of them are available. Spot machines are `resources.Trainer.spot`."""
    max_wait_duration: int | None = Field(None, ge=0)
    """Seconds that `FLEX_START` waits; 0 for any time, default one day."""
    timeout: int | None = Field(None, ge=1)
    """Maximum duration of training, in seconds; default seven days."""
    restart_job_on_worker_restart: bool = False
    """True to restart all training machines when one restarts, not just that one."""
    tensorboard: str | None = Field(None, pattern=r"^projects/[^/]+/locations/[^/]+/tensorboards/[^/]+$")
    """Vertex AI TensorBoard instance that also gets the training logs; needs
    `service_account`."""
    reservation: str | None = Field(None, pattern=r"^projects/[^/]+/zones/[^/]+/reservations/[^/]+$")
    """Compute Engine reservation to take training machines from."""
    reduction_server_replica_count: int = Field(1, ge=1)
    """Number of reduction servers, used if `all_reduce` is `reduction_server`."""
    reduction_server_machine_type: str = "n1-highcpu-16"
    """Machine type of each reduction server; its network matters most."""

"""Runs a training as a CustomJob of Vertex AI. Imports no client of Google Cloud.

A machine's role follows from the position of its worker pool in the list: chief,
workers, parameter servers or reduction servers. Source:
https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tfx_distribute.components.launchers.launcher import Launcher, LauncherSettings, Request, State, Training
from tfx_distribute.trainer_module.job import strategy_info
from tfx_distribute.trainer_module.job.cluster import (
    ERROR_FILE_VARIABLE,
    PARAMETER_SERVER,
    REQUESTED_GPUS,
    ClusterTask,
    replicas_of_roles,
    uses_accelerators,
)

if TYPE_CHECKING:
    from tfx_distribute.components.launchers.vertex.custom_job import FollowedJob

# It has a command of its own. Source:
# https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduction_server
REDUCTION_SERVER_IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
TRAINING_LABEL = "tfx-distribute-training"  # by which another attempt of a step finds its job


@dataclass(frozen=True, kw_only=True)
class VertexTrainingSettings(LauncherSettings):
    """Settings of training on Vertex AI: machines, network and service account.

    MachineSpec, DiskSpec, Scheduling, PscInterfaceConfig and EncryptionSpec are
    messages of version 1 of its API, as JSON values.

    Attributes:
      project: Google Cloud project.
      location: Region of the project.
      image: Container image of training processes.
      worker: MachineSpec of each training process.
      parameter_server: MachineSpec of each parameter server, and of a chief that only
        coordinates.
      reduction_server: MachineSpec of reduction servers.
      reduction_server_replica_count: Number of reduction servers, if `all_reduce` asks
        for them.
      disk_spec: DiskSpec of machines like `worker`; empty for the service's default.
      parameter_server_disk_spec: DiskSpec of machines like `parameter_server`.
      scheduling: Scheduling of the job; empty for the service's default.
      service_account: Service account of the processes; None for the service's default.
      network: Network that the machines are peered with; None for none.
      psc_interface_config: PscInterfaceConfig of the job; empty for none.
      tensorboard: Vertex AI TensorBoard instance that also gets the logs; None for
        none.
      encryption_spec: EncryptionSpec of the job; empty for none.
      labels: Labels of the job.
      environment: Environment variables of training processes.
      training: As in `LauncherSettings`, or `custom_job`.
      start_timeout_seconds: No limit: the service has its own.
    """

    project: str
    location: str
    image: str
    worker: Mapping[str, Any]
    parameter_server: Mapping[str, Any]
    reduction_server: Mapping[str, Any] = field(default_factory=dict)
    reduction_server_replica_count: int = 0
    disk_spec: Mapping[str, Any] = field(default_factory=dict)
    parameter_server_disk_spec: Mapping[str, Any] = field(default_factory=dict)
    scheduling: Mapping[str, Any] = field(default_factory=dict)
    service_account: str | None = None
    network: str | None = None
    psc_interface_config: Mapping[str, Any] = field(default_factory=dict)
    tensorboard: str | None = None
    encryption_spec: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    training: Literal["auto", "step", "custom_job"] = "auto"
    start_timeout_seconds: float = 0.0

    LAUNCHER = "vertex"
    ELSEWHERE = "custom_job"


class VertexLauncher(Launcher[VertexTrainingSettings]):
    """Runs a training as a CustomJob of Vertex AI.

    ```python
    launcher = VertexLauncher(settings)
    follow(launcher, launcher.request(training), Limits(Restarts(3)))
    ```
    """

    Settings = VertexTrainingSettings
    poll_seconds = 10.0

    def __init__(self, settings: VertexTrainingSettings):
        super().__init__(settings)
        self._job: FollowedJob | None = None

    def request(self, training: Training) -> Request:
        """Makes a CustomJob of the API, version 1, as JSON values."""
        folder = training.job_address.rpartition("/")[0]
        optional_fields = {
            "scheduling": dict(self.settings.scheduling),
            "service_account": self.settings.service_account,
            "network": self.settings.network,
            "psc_interface_config": dict(self.settings.psc_interface_config),
            "tensorboard": self.settings.tensorboard,
            # TensorBoard reads the logs from a folder below.
            "base_output_directory": {"output_uri_prefix": folder} if self.settings.tensorboard else None,
        }
        request: Request = {
            "display_name": training.name,
            "labels": {**self.settings.labels, TRAINING_LABEL: training.name},
            "job_spec": {
                "worker_pool_specs": _make_pools(training, self.settings, f"{folder}/error.json"),
                **{key: value for key, value in optional_fields.items() if value},
            },
        }
        if self.settings.encryption_spec:
            request["encryption_spec"] = dict(self.settings.encryption_spec)
        return request

    def start(self, request: Request, has_result: bool) -> bool:
        """Creates a job, or takes over that of an earlier attempt."""
        from tfx_distribute.components.launchers.vertex.custom_job import FollowedJob

        self._job = self._job or FollowedJob(self.settings, request, self.poll_seconds)
        return self._job.start(has_result)

    def state(self) -> State:
        """Asks for the state of the job."""
        assert self._job, "start comes first"
        return self._job.state()

    def stop(self, has_time: bool) -> None:
        """Cancels the job."""
        if self._job:
            self._job.cancel(has_time)


def _make_pools(training: Training, settings: VertexTrainingSettings, error_file: str) -> list[dict[str, Any]]:
    """Makes the pools that a strategy needs, each at its position."""
    distribution = training.distribution

    def training_container(machine: Mapping[str, Any]) -> dict[str, Any]:
        has_gpus = machine.get("accelerator_type", "").startswith("NVIDIA")
        gpus = {REQUESTED_GPUS: str(machine["accelerator_count"])} if has_gpus else {}
        variables = {**settings.environment, **training.environment, ERROR_FILE_VARIABLE: error_file, **gpus}
        return {
            "image_uri": settings.image,
            "command": ["python", "-m", "tfx_distribute.trainer_module", "--job", training.job_address],
            "env": [{"name": key, "value": value} for key, value in sorted(variables.items())],
        }

    def pool(
        machine: Mapping[str, Any], count: int, container: dict[str, Any], disk: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        spec = {"machine_spec": dict(machine), "replica_count": count, "container_spec": container}
        return {**spec, "disk_spec": dict(disk)} if disk else spec

    pools = {}
    for role, count in replicas_of_roles(distribution).items():
        if uses_accelerators(distribution, ClusterTask(role, 0)):
            machine, disk = settings.worker, settings.disk_spec
        else:
            machine, disk = settings.parameter_server, settings.parameter_server_disk_spec
        pools[role] = pool(machine, count, training_container(machine), disk)
    if distribution.all_reduce == strategy_info.REDUCTION_SERVER:
        container = {"image_uri": REDUCTION_SERVER_IMAGE}
        pools[PARAMETER_SERVER] = pool(settings.reduction_server, settings.reduction_server_replica_count, container)
    return list(pools.values())  # each at its position: who has servers has workers

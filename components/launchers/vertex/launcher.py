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

TRAINING_LABEL = "tfx-distribute-training"  # by which another attempt of a step finds its job


@dataclass(frozen=True, kw_only=True)
class VertexTrainingSettings(LauncherSettings):
    """Settings of training on Vertex AI: templates of jobs and of their worker pools.

    WorkerPoolSpec and CustomJob are messages of version 1 of its API, as JSON values.

    Attributes:
      project: Google Cloud project.
      location: Region of the project.
      worker: WorkerPoolSpec of each training process. The launcher adds command,
        variables and number of replicas.
      parameter_server: The same of each parameter server, and of a chief that only
        coordinates.
      reduction_server: WorkerPoolSpec of reduction servers, if `all_reduce` asks for
        them.
      job: CustomJob of each training. The launcher adds its name, label and pools.
      training: As in `LauncherSettings`, or `custom_job`.
      start_timeout_seconds: No limit: the service has its own.
    """

    project: str
    location: str
    worker: Mapping[str, Any]
    parameter_server: Mapping[str, Any]
    reduction_server: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
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
        job = self.settings.job
        spec = {
            **job.get("job_spec", {}),
            "worker_pool_specs": _make_pools(training, self.settings, f"{folder}/error.json"),
        }
        if "tensorboard" in spec:  # it reads the logs from a folder below
            spec["base_output_directory"] = {"output_uri_prefix": folder}
        labels = {**job.get("labels", {}), TRAINING_LABEL: training.name}
        return {**job, "display_name": training.name, "labels": labels, "job_spec": spec}

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

    def pool(template: Mapping[str, Any], count: int) -> dict[str, Any]:
        machine, container = template["machine_spec"], template["container_spec"]
        has_gpus = machine.get("accelerator_type", "").startswith("NVIDIA")
        gpus = {REQUESTED_GPUS: str(machine["accelerator_count"])} if has_gpus else {}
        variables = {each["name"]: each["value"] for each in container.get("env", ())}
        variables |= {**training.environment, ERROR_FILE_VARIABLE: error_file, **gpus}
        container = {
            **container,
            "command": ["python", "-m", "tfx_distribute.trainer_module", "--job", training.job_address],
            "env": [{"name": key, "value": value} for key, value in sorted(variables.items())],
        }
        return {**template, "machine_spec": dict(machine), "replica_count": count, "container_spec": container}

    pools = {}
    for role, count in replicas_of_roles(distribution).items():
        with_accelerators = uses_accelerators(distribution, ClusterTask(role, 0))
        pools[role] = pool(settings.worker if with_accelerators else settings.parameter_server, count)
    if distribution.all_reduce == strategy_info.REDUCTION_SERVER:
        pools[PARAMETER_SERVER] = dict(settings.reduction_server)
    return list(pools.values())  # each at its position: who has servers has workers

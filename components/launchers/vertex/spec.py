"""Makes the spec of a CustomJob that runs a training cluster.

Pure functions, without requests to Vertex AI. A machine's role follows from the
position of its worker pool in the list: chief, workers, parameter servers or reduction
servers, evaluator. A pool that is not needed is left empty. Source:
https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tfx_distribute.trainer_module.job import strategy_info
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF,
    EVALUATOR,
    PARAMETER_SERVER,
    REQUESTED_GPUS,
    WORKER,
    ClusterTask,
    replicas_of_roles,
    uses_accelerators,
)
from tfx_distribute.trainer_module.job.training_job import Distribution

# It has a command of its own. Source:
# https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduction_server
REDUCTION_SERVER_IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
POOLS = (CHIEF, WORKER, PARAMETER_SERVER, EVALUATOR)
TRAINING_LABEL = "tfx-distribute-training"  # by which another attempt of a step finds its job


@dataclass(frozen=True)
class CustomJobSettings:
    """Settings of training on Vertex AI: machines, network and service account.

    MachineSpec, DiskSpec, Scheduling, PscInterfaceConfig and EncryptionSpec are
    messages of version 1 of its API, as JSON values.

    Attributes:
      name: First part of the names of CustomJobs: the name of the pipeline.
      project: Google Cloud project.
      location: Region of the project.
      image: Container image of training processes.
      worker: MachineSpec of each training process and of the evaluator.
      parameter_server: MachineSpec of each parameter server, and of a chief that only
        coordinates.
      reduction_server: MachineSpec of reduction servers.
      reduction_server_replica_count: Number of reduction servers, if `all_reduce` asks
        for them.
      training: `custom_job`; `step` for processes in the Trainer's own step; or `auto`:
        in the step if it is a single process.
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
      kind: Tells the kinds of settings apart in their JSON document.
    """

    name: str
    project: str
    location: str
    image: str
    worker: Mapping[str, Any]
    parameter_server: Mapping[str, Any]
    reduction_server: Mapping[str, Any] = field(default_factory=dict)
    reduction_server_replica_count: int = 0
    training: Literal["auto", "step", "custom_job"] = "auto"
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
    kind: Literal["custom_job"] = "custom_job"


def address_of(task: ClusterTask, job_id: str) -> str:
    """Returns the address that the service gives a process in TF_CONFIG.

    Args:
      task: The process.
      job_id: The part of the address that the service chooses for a job. Source:
        https://cloud.google.com/vertex-ai/docs/training/distributed-training#cluster-spec-format
    """
    return f"cmle-training-workerpool{POOLS.index(task.role)}-{job_id}-{task.index}:2222"


def make_spec(
    name: str, job_address: str, distribution: Distribution, environment: Mapping[str, str], settings: CustomJobSettings
) -> dict[str, Any]:
    """Makes the spec of a CustomJob.

    Args:
      name: Name of the training, for people to read and for another attempt of the step
        to find.
      job_address: Path or address of the `TrainingJob` document.
      distribution: Strategy and number of processes.
      environment: Environment variables of each process.
      settings: Machines, and how they are scheduled.

    Returns:
      A CustomJob of the API, version 1, as JSON values.
    """
    job_spec: dict[str, Any] = {"worker_pool_specs": worker_pools(job_address, distribution, environment, settings)}
    optional_fields = {
        "scheduling": dict(settings.scheduling),
        "service_account": settings.service_account,
        "network": settings.network,
        "psc_interface_config": dict(settings.psc_interface_config),
        "tensorboard": settings.tensorboard,
    }
    job_spec |= {key: value for key, value in optional_fields.items() if value}
    if settings.tensorboard:  # it reads the logs from a folder below
        job_spec["base_output_directory"] = {"output_uri_prefix": job_address.rpartition("/")[0]}
    labels = {**settings.labels, TRAINING_LABEL: name}
    spec: dict[str, Any] = {"display_name": name, "labels": labels, "job_spec": job_spec}
    if settings.encryption_spec:
        spec["encryption_spec"] = dict(settings.encryption_spec)
    return spec


def worker_pools(
    job_address: str, distribution: Distribution, environment: Mapping[str, str], settings: CustomJobSettings
) -> list[dict[str, Any]]:
    """Makes the worker pools that a strategy needs, each at its position.

    Args:
      job_address: As in `make_spec`.
      distribution: As in `make_spec`.
      environment: As in `make_spec`.
      settings: As in `make_spec`.

    Returns:
      WorkerPoolSpecs of the API, as JSON values; empty ones for roles without machines.
    """

    def training_container(machine: Mapping[str, Any]) -> dict[str, Any]:
        has_gpus = machine.get("accelerator_type", "").startswith("NVIDIA")
        gpus = {REQUESTED_GPUS: str(machine["accelerator_count"])} if has_gpus else {}
        variables = {**settings.environment, **environment, **gpus}
        return {
            "image_uri": settings.image,
            "command": ["python", "-m", "tfx_distribute.trainer_module", "--job", job_address],
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
    last = max(POOLS.index(role) for role in pools)
    return [pools.get(role, {}) for role in POOLS[: last + 1]]

"""A training cluster as a CustomJob of Vertex AI: what the service is told. Pure.

The roles of machines follow from their place in the list of worker pools: chief, workers, parameter servers or reduction
servers, evaluator; a place that is not needed is left empty. Source:
https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF,
    EVALUATOR,
    PARAMETER_SERVER,
    WORKER,
    ClusterTask,
    replicas_of_roles,
    uses_accelerators,
)
from tfx_distribute.trainer_module.job.training_job import Distribution

# https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduction_server. It has its own command.
REDUCTION_SERVER_IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
POOLS = (CHIEF, WORKER, PARAMETER_SERVER, EVALUATOR)
TRAINING_LABEL = "tfx-distribute-training"  # by which another try of a step finds its job


@dataclass(frozen=True)
class CustomJobSettings:
    """Where a training runs on Vertex AI. Documents are those of its API, version 1.

    Attributes:
      name: What CustomJobs are called after: the name of the pipeline.
      project: Google Cloud project.
      location: Its region.
      image: Container image of training processes.
      worker: MachineSpec of each training process and of the evaluator.
      parameter_server: MachineSpec of parameter servers and of the chief that coordinates.
      reduction_server: MachineSpec of reduction servers.
      reduction_server_replica_count: How many of them, where `all_reduce` asks for them.
      training: `custom_job`, `step` for processes in the Trainer's own step, or `auto`: in the step if it is one process.
      disk_spec: DiskSpec of each machine.
      scheduling: Scheduling of the job.
      service_account: Service account that processes act as.
      network: Network that machines are peered with.
      tensorboard: Vertex AI TensorBoard instance that logs go to as well.
      encryption_spec: EncryptionSpec of the job.
      labels: Labels of the job.
      kind: Tells these settings from others.
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
    scheduling: Mapping[str, Any] = field(default_factory=dict)
    service_account: str | None = None
    network: str | None = None
    tensorboard: str | None = None
    encryption_spec: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["custom_job"] = "custom_job"


def request(
    name: str, job_address: str, distribution: Distribution, environment: Mapping[str, str], settings: CustomJobSettings
) -> dict[str, Any]:
    """Makes the CustomJob.

    Args:
      name: Name of the training, which a person reads and another try of the step looks for.
      job_address: Where the processes find the `TrainingJob` document.
      distribution: Who takes part.
      environment: Environment variables of each process.
      settings: What the machines are.
    """
    spec: dict[str, Any] = {"worker_pool_specs": worker_pools(job_address, distribution, environment, settings)}
    given = {
        "scheduling": dict(settings.scheduling),
        "service_account": settings.service_account,
        "network": settings.network,
        "tensorboard": settings.tensorboard,
    }
    spec |= {setting: value for setting, value in given.items() if value}
    if settings.tensorboard:  # which reads logs from a folder below
        spec["base_output_directory"] = {"output_uri_prefix": job_address.rpartition("/")[0]}
    document = {"display_name": name, "labels": {**settings.labels, TRAINING_LABEL: name}, "job_spec": spec}
    if settings.encryption_spec:
        document["encryption_spec"] = dict(settings.encryption_spec)
    return document


def worker_pools(
    job_address: str, distribution: Distribution, environment: Mapping[str, str], settings: CustomJobSettings
) -> list[dict[str, Any]]:
    """The worker pools that a strategy needs, each in its place.

    Args:
      job_address: As in `request`.
      distribution: As in `request`.
      environment: As in `request`.
      settings: As in `request`.
    """

    def process() -> dict[str, Any]:
        return {
            "image_uri": settings.image,
            "command": ["python", "-m", "tfx_distribute.trainer_module", "--job", job_address],
            "env": [{"name": key, "value": value} for key, value in sorted(environment.items())],
        }

    def pool(machine: Mapping[str, Any], count: int, container: dict[str, Any]) -> dict[str, Any]:
        disk = {"disk_spec": dict(settings.disk_spec)} if settings.disk_spec else {}
        return {"machine_spec": dict(machine), "replica_count": count, "container_spec": container, **disk}

    pools = {}
    for role, count in replicas_of_roles(distribution).items():
        computes = uses_accelerators(distribution, ClusterTask(role, 0))
        pools[role] = pool(settings.worker if computes else settings.parameter_server, count, process())
    if distribution.all_reduce == strategy_table.REDUCTION_SERVER:
        servers = {"image_uri": REDUCTION_SERVER_IMAGE}
        pools[PARAMETER_SERVER] = pool(settings.reduction_server, settings.reduction_server_replica_count, servers)
    last = max(POOLS.index(role) for role in pools)
    return [pools.get(role, {}) for role in POOLS[: last + 1]]

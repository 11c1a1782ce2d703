"""A training cluster as a TFJob: what the Training Operator is told. Pure.

Source: https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/ and the operator's release 1.9.
"""

import copy
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

API_VERSION, GROUP, VERSION, PLURAL = "kubeflow.org/v1", "kubeflow.org", "v1", "tfjobs"
REPLICA_TYPES = {CHIEF: "Chief", WORKER: "Worker", PARAMETER_SERVER: "PS", EVALUATOR: "Evaluator"}
CONTAINER = "tensorflow"  # which the operator looks for
KEPT_SECONDS = 24 * 3600  # a TFJob that has ended, for people to look at
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class TFJobSettings:
    """Where a training runs on Kubernetes.

    Attributes:
      name: What TFJobs are called after: the name of the pipeline.
      worker: Pod of each training process and of the evaluator: a PodTemplateSpec with one container, `tensorflow`.
      parameter_server: Pod of parameter servers and of the chief that coordinates.
      training: `tfjob`, `step` for processes in the Trainer's own step, or `auto`: in the step if it is one process.
      training_dir: Folder or gs:// address that all pods reach; None where the artifacts' addresses are such.
      labels: Labels of the TFJob.
      queue: Local queue of Kueue.
      scheduling_policy: The operator's schedulingPolicy: how all pods start together; None where each starts by itself.
      active_deadline_seconds: Seconds after which the TFJob has failed.
      kind: Tells these settings from others.
    """

    name: str
    worker: Mapping[str, Any]
    parameter_server: Mapping[str, Any]
    training: Literal["auto", "step", "tfjob"] = "auto"
    training_dir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    scheduling_policy: Mapping[str, Any] | None = None
    active_deadline_seconds: int | None = None
    kind: Literal["tfjob"] = "tfjob"


@dataclass(frozen=True)
class Owner:
    """The pod whose end is the end of the TFJob.

    Attributes:
      name: Its name.
      uid: Its uid.
    """

    name: str
    uid: str


def manifest(
    name: str,
    job_address: str,
    distribution: Distribution,
    environment: Mapping[str, str],
    settings: TFJobSettings,
    owner: Owner | None,
) -> dict[str, Any]:
    """Makes the TFJob.

    Args:
      name: Name of the TFJob.
      job_address: Where the pods find the `TrainingJob` document.
      distribution: Who takes part.
      environment: Environment variables of each process.
      settings: What the pods are, and how they are scheduled.
      owner: The pod that it belongs to.

    Raises:
      ConfigurationError: It is none that Kubernetes can run.
    """
    strategy_table.check_all_reduce(distribution, "Kubeflow")
    metadata: dict[str, Any] = {"name": name, "labels": dict(settings.labels)}
    if settings.queue:
        metadata["labels"][QUEUE_LABEL] = settings.queue
    if owner:
        # When the pod is removed, with its run, the TFJob is too.
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}]
    policy: dict[str, Any] = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": KEPT_SECONDS}
    if settings.active_deadline_seconds:
        policy["activeDeadlineSeconds"] = settings.active_deadline_seconds
    roles = replicas_of_roles(distribution)
    if settings.scheduling_policy is not None:
        policy["schedulingPolicy"] = {"minAvailable": sum(roles.values()), **settings.scheduling_policy}
    replicas = {}
    for role, count in roles.items():
        template = copy.deepcopy(dict(_template(role, distribution, settings)))
        (container,) = template["spec"]["containers"]
        container["command"] = ["python", "-m", "tfx_distribute.trainer_module", "--job", job_address]
        variables = [{"name": key, "value": value} for key, value in sorted(environment.items())]
        container["env"] = [*container.get("env", ()), *variables]
        # Exit codes of 128 and more, which ours give where another try may do better, are tried again; others are final.
        replicas[REPLICA_TYPES[role]] = {"replicas": count, "restartPolicy": "ExitCode", "template": template}
    return {
        "apiVersion": API_VERSION,
        "kind": "TFJob",
        "metadata": metadata,
        "spec": {"runPolicy": policy, "tfReplicaSpecs": replicas},
    }


def _template(role: str, distribution: Distribution, settings: TFJobSettings) -> Mapping[str, Any]:
    return settings.worker if uses_accelerators(distribution, ClusterTask(role, 0)) else settings.parameter_server

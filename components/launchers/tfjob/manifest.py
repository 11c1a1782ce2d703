"""Makes the manifest of a TFJob that runs a training cluster.

Pure functions, without requests to Kubernetes. Source: release 1.9 of the Training
Operator and
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
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
CONTAINER = "tensorflow"  # the operator looks for a container of this name
# How long a TFJob is kept after its end, for people to look at; at most, since Kubeflow
# deletes it with its workflow: from 2.17 on after an hour.
KEPT_SECONDS = 24 * 3600
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class TFJobSettings:
    """Settings of training on Kubernetes: pods, and how they are scheduled.

    Attributes:
      name: First part of the names of TFJobs: the name of the pipeline.
      worker: Pod of each training process and of the evaluator: a PodTemplateSpec with
        one container, `tensorflow`.
      parameter_server: Pod of each parameter server, and of a chief that only
        coordinates.
      training: `tfjob`; `step` for processes in the Trainer's own step; or `auto`: in
        the step if it is a single process.
      training_dir: Folder or gs:// address that all pods can reach; None if they can
        reach the artifacts' own addresses.
      labels: Labels of the TFJob.
      queue: Local queue of Kueue; None without Kueue.
      scheduling_policy: The operator's schedulingPolicy, with which all pods start
        together; None if each pod starts by itself.
      active_deadline_seconds: Seconds after which the TFJob fails; None for no limit.
      quota_timeout_seconds: Seconds to wait while a quota refuses pods.
      kind: Tells the kinds of settings apart in their JSON document.
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
    quota_timeout_seconds: int = 3600
    kind: Literal["tfjob"] = "tfjob"


@dataclass(frozen=True)
class Owner:
    """The pod that owns a TFJob: Kubernetes deletes the TFJob together with it.

    Attributes:
      name: Name of the pod.
      uid: Uid of the pod.
    """

    name: str
    uid: str


def make_manifest(
    name: str,
    job_address: str,
    distribution: Distribution,
    environment: Mapping[str, str],
    settings: TFJobSettings,
    owner: Owner | None = None,
) -> dict[str, Any]:
    """Makes the manifest of a TFJob.

    Args:
      name: Name of the TFJob.
      job_address: Path or address of the `TrainingJob` document.
      distribution: Strategy and number of processes.
      environment: Environment variables of each process.
      settings: Pods, and how they are scheduled.
      owner: Pod that owns the TFJob; None for a TFJob that stays by itself.

    Returns:
      The manifest, as JSON values.

    Raises:
      ConfigurationError: Kubernetes cannot run this distribution.
    """
    strategy_table.check_all_reduce(distribution, "Kubeflow")
    metadata: dict[str, Any] = {"name": name, "labels": dict(settings.labels)}
    if settings.queue:
        metadata["labels"][QUEUE_LABEL] = settings.queue
    if owner:
        # When the pod is deleted with its run, Kubernetes deletes the TFJob too.
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
        # The operator restarts a pod after exit codes from 128 on, and gives up after
        # others. Training processes exit with such a code if another attempt may
        # succeed.
        replicas[REPLICA_TYPES[role]] = {"replicas": count, "restartPolicy": "ExitCode", "template": template}
    return {
        "apiVersion": API_VERSION,
        "kind": "TFJob",
        "metadata": metadata,
        "spec": {"runPolicy": policy, "tfReplicaSpecs": replicas},
    }


def find_dropped(sent: Any, stored: Any, path: str) -> list[str]:
    """Returns the fields that a cluster has dropped: its resource does not know them.

    Args:
      sent: A part of a manifest that was sent.
      stored: The same part as the cluster has stored it.
      path: Name of the part.
    """
    if isinstance(sent, Mapping) and isinstance(stored, Mapping):
        missing = [f"{path}.{key}" for key in sent if key not in stored]
        return missing + [
            field for key in sent if key in stored for field in find_dropped(sent[key], stored[key], f"{path}.{key}")
        ]
    # Where lengths differ, a webhook of the cluster has added items.
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        return [
            field
            for position, (one, other) in enumerate(zip(sent, stored, strict=True))
            for field in find_dropped(one, other, f"{path}[{position}]")
        ]
    return []


def _template(role: str, distribution: Distribution, settings: TFJobSettings) -> Mapping[str, Any]:
    """Returns the pod template of a role."""
    return settings.worker if uses_accelerators(distribution, ClusterTask(role, 0)) else settings.parameter_server

"""Defines TFJobs, which Kubeflow's Training Operator makes pods for.

Sources: release 1.9 of the Training Operator and
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind, JobState
from tfx_distribute.components.launchers.kubernetes.pod_template import Document, Step, complete_pod_template
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF,
    EVALUATOR,
    PARAMETER_SERVER,
    WORKER,
    ClusterTask,
    replicas_of_roles,
)

if TYPE_CHECKING:
    from kubernetes import client

REPLICA_TYPES = {CHIEF: "Chief", WORKER: "Worker", PARAMETER_SERVER: "PS", EVALUATOR: "Evaluator"}
_ROLES = {kind: role for role, kind in REPLICA_TYPES.items()}
_LABELS = "training.kubeflow.org"


class TFJob(JobKind):
    """A TFJob, for whose pods the operator writes TF_CONFIG."""

    name, title = "tfjob", "TFJob"
    group, version, plural = "kubeflow.org", "v1", "tfjobs"
    name_label = f"{_LABELS}/job-name"
    install = "install Kubeflow's Training Operator 1.9"

    def make_spec(self, training: Training, settings: KubernetesSettings, step: Step | None) -> Document:
        """Makes the spec of a TFJob; see `JobKind`."""
        roles = replicas_of_roles(training.distribution)
        # The end of any pod ends the TFJob, which the launcher starts again.
        replicas = {
            REPLICA_TYPES[role]: {
                "replicas": count,
                "restartPolicy": "Never",
                "template": complete_pod_template(role, training, settings, step),
            }
            for role, count in roles.items()
        }
        policy = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": timeouts.KEPT_SECONDS}
        return {"runPolicy": policy, "tfReplicaSpecs": replicas}

    def list_tasks(self, job: Mapping[str, Any]) -> frozenset[ClusterTask]:
        """Returns the tasks that a TFJob shall have a pod for."""
        return frozenset(
            ClusterTask(_ROLES[kind], index)
            for kind, replica in job["spec"]["tfReplicaSpecs"].items()
            for index in range(replica["replicas"])
        )

    def task_of(self, pod: "client.V1Pod") -> ClusterTask:
        """Returns the task that the operator has made a pod for."""
        labels = pod.metadata.labels
        return ClusterTask(labels[f"{_LABELS}/replica-type"], int(labels[f"{_LABELS}/replica-index"]))

    def read_state(self, job: Mapping[str, Any]) -> JobState:
        """Reads the status of a TFJob: the latest condition that holds is its state."""
        status = job.get("status") or {}
        latest = _latest([each for each in status.get("conditions") or () if each["status"] == "True"])
        phase: Literal["active", "suspended", "succeeded", "failed"] = "active"
        if latest["type"] in ("Succeeded", "Failed"):
            phase = "succeeded" if latest["type"] == "Succeeded" else "failed"
        elif (job["spec"].get("runPolicy") or {}).get("suspend"):
            phase = "suspended"
        return JobState(phase, str(latest.get("message") or latest.get("reason") or ""))


def _latest(holding: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the latest of the conditions that hold: earlier ones stay."""
    # Both hold if the chief ended just when another process failed. There is a model
    # then, so success comes first.
    for last_type in ("Succeeded", "Failed"):
        for condition in holding:
            if condition["type"] == last_type:
                return condition
    return (holding or [{"type": "Created"}])[-1]

"""Defines TFJobs, which Kubeflow's Training Operator makes pods for.

Sources: release 1.9 of the Training Operator and
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
"""

from collections.abc import Mapping

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind
from tfx_distribute.components.launchers.kubernetes.pod_template import Document
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF,
    PARAMETER_SERVER,
    WORKER,
    replicas_of_roles,
)

REPLICA_TYPES = {CHIEF: "Chief", WORKER: "Worker", PARAMETER_SERVER: "PS"}
_LABELS = "training.kubeflow.org"


class TFJob(JobKind):
    """A TFJob, for whose pods the operator writes TF_CONFIG."""

    name, title = "tfjob", "TFJob"
    group, version, plural = "kubeflow.org", "v1", "tfjobs"
    name_label, role_label = f"{_LABELS}/job-name", f"{_LABELS}/replica-type"
    index_label = f"{_LABELS}/replica-index"
    success, used_up = "Succeeded", ""
    install = "install Kubeflow's Training Operator 1.9"

    def make_spec(self, training: Training, templates: Mapping[str, Document]) -> Document:
        """Makes the spec of a TFJob; see `JobKind`."""
        roles = replicas_of_roles(training.distribution)
        # The end of any pod ends the TFJob, which the launcher starts again.
        replicas = {
            REPLICA_TYPES[role]: {"replicas": count, "restartPolicy": "Never", "template": templates[role]}
            for role, count in roles.items()
        }
        policy = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": timeouts.KEPT_SECONDS}
        return {"runPolicy": policy, "tfReplicaSpecs": replicas}

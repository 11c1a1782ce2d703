"""Defines JobSets, which kubernetes-sigs/jobset makes Jobs and their pods for.

Sources: release 0.10 of https://github.com/kubernetes-sigs/jobset, and
https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
"""

from collections.abc import Mapping

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind
from tfx_distribute.components.launchers.kubernetes.pod_template import Document
from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF,
    PARAMETER_SERVER,
    TF_CONFIG,
    WORKER,
    Cluster,
    ClusterTask,
    replicas_of_roles,
    tasks_of,
)
from tfx_distribute.trainer_module.liveness import exit_codes

PORT = 2222
TASK_INDEX = "TFX_DISTRIBUTE_TASK_INDEX"
_LABELS = "jobset.sigs.k8s.io"
_INDEX = f"{_LABELS}/job-index"


class JobSet(JobKind):
    """A JobSet with a replicated job for each role, and a Job for each task.

    A Job of several tasks would be Failed only when Kubernetes has ended the pods of
    all of them. By then, processes of other Jobs would have ended too, as they had lost
    the first, and would have had the JobSet restarted although its exit code was final.
    """

    name, title = "jobset", "JobSet"
    group, version, plural = "jobset.x-k8s.io", "v1alpha2", "jobsets"
    name_label, role_label, index_label = f"{_LABELS}/jobset-name", f"{_LABELS}/replicatedjob-name", _INDEX
    success, used_up = "Completed", "ReachedMaxRestarts"
    install = "install JobSet 0.8 or later (https://jobset.sigs.k8s.io/docs/installation/)"

    def make_spec(self, training: Training, templates: Mapping[str, Document]) -> Document:
        """Makes the spec of a JobSet; see `JobKind`."""
        roles = replicas_of_roles(training.distribution)
        name = training.name  # also the subdomain of its pods' addresses
        cluster = Cluster.of(roles, [f"{name}-{task.file_name}-0.{name}:{PORT}" for task in tasks_of(training.distribution)])
        jobs = [_make_replicated_job(role, count, training, templates[role], cluster) for role, count in roles.items()]
        return {
            "network": {"enableDNSHostnames": True, "subdomain": training.name, "publishNotReadyAddresses": True},
            # Parameter servers do not end by themselves.
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [CHIEF]},
            "failurePolicy": {
                "maxRestarts": training.max_restarts,
                # A process must not find one of the try before.
                "restartStrategy": "BlockingRecreate",
                "rules": [{"name": "final", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            "ttlSecondsAfterFinished": timeouts.KEPT_SECONDS,
            "replicatedJobs": jobs,
        }


def _make_replicated_job(role: str, count: int, training: Training, template: Document, cluster: Cluster) -> Document:
    """Returns the replicated job of a role, with its pod template, which it changes."""
    (container,) = template["spec"]["containers"]
    # Kubernetes puts the value of the first variable into the second.
    index = {"name": TASK_INDEX, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_INDEX}']"}}}
    config = cluster.tf_config(ClusterTask(role, 0)).replace('"index": 0', f'"index": $({TASK_INDEX})')
    container["env"] = [index, {"name": TF_CONFIG, "value": config}, *container["env"]]
    template["spec"]["restartPolicy"] = "Never"  # on its machine, it would not find its peers
    is_replaceable = role == WORKER and PARAMETER_SERVER in cluster.addresses
    rules: list[Document] = [
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": list(exit_codes.FINAL)},
        }
    ]
    return {
        "name": role,
        "replicas": count,
        "template": {
            "spec": {
                "completionMode": "Indexed",
                "completions": 1,
                "parallelism": 1,
                # Training goes on without these until they have another pod. The end of
                # any other starts the whole cluster again.
                "backoffLimit": training.max_restarts if is_replaceable else 0,
                "podFailurePolicy": {"rules": rules},
                "template": template,
            }
        },
    }

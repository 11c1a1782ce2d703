"""Defines the kinds of jobs that train: manifests, and what their statuses say.

A kind is a custom resource whose controller makes the pods of a training. A pipeline
file's settings become a pod template when it is compiled, which the launcher completes
with what is known only then: the command of a process, and the rights of the step that
starts it. Pure functions, without requests to Kubernetes.
"""

import abc
import copy
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.launcher import LauncherSettings, Training
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF,
    PARAMETER_SERVER,
    TF_CONFIG,
    WORKER,
    Cluster,
    ClusterTask,
    replicas_of_roles,
    tasks_of,
    uses_accelerators,
)
from tfx_distribute.trainer_module.liveness import exit_codes

if TYPE_CHECKING:
    from kubernetes import client

Document = dict[str, Any]

CONTAINER = "tensorflow"  # the Training Operator looks for a container of this name
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PORT = 2222  # of the processes of a JobSet
TASK_INDEX = "TFX_DISTRIBUTE_TASK_INDEX"
_JOBSET, _TFJOB = "jobset.sigs.k8s.io", "training.kubeflow.org"  # prefixes of labels
_INDEX = f"{_JOBSET}/job-index"


@dataclass(frozen=True)
class KubernetesSettings(LauncherSettings):
    """Settings of training on Kubernetes: pods, and how they are scheduled.

    Attributes:
      worker: Pod of each training process: a PodTemplateSpec with one container,
        `tensorflow`.
      parameter_server: Pod of each parameter server, and of a chief that only
        coordinates.
      training: `step` for processes in the Trainer's own step; `jobset` or `tfjob` for
        pods; or `auto`: in the step if it is a single process, else in pods of a JobSet
        where the cluster has them, or of a TFJob. `elsewhere` is `auto`, but never in
        the step.
      labels: Labels of the job.
      queue: Local queue of Kueue; None without Kueue.
    """

    worker: Mapping[str, Any]
    parameter_server: Mapping[str, Any]
    _: KW_ONLY
    training: Literal["auto", "step", "elsewhere", "jobset", "tfjob"] = "auto"
    labels: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None

    LAUNCHER: ClassVar[str] = "kubernetes"


@dataclass(frozen=True)
class Step:
    """The pod of the pipeline's step that starts a training.

    Pods of the training have its rights: with another service account they may reach
    neither data nor images, and as another user not the files that both exchange.

    Attributes:
      uid: Its uid. Kubernetes deletes the job together with it.
    """

    name: str
    uid: str
    account: str
    user: int
    group: int

    def complete(self, pod: Document) -> None:
        """Adds the step's rights to the spec of a pod, where it has none of its own."""
        pod.setdefault("serviceAccountName", self.account)
        context = pod.get("securityContext", {})
        if self.user and "runAsUser" not in context:
            pod["securityContext"] = {"runAsUser": self.user, "runAsGroup": self.group, **context}


@dataclass(frozen=True)
class JobState:
    """The state of a job, read from its status.

    Attributes:
      phase: `succeeded`, `failed`, `suspended`, or `active` for all others.
      reason: The controller's words about its end.
      is_final: True if the controller has given up a failed job for good.
      has_restarted: True if it has given it up after as many restarts as it may make.
    """

    phase: Literal["active", "suspended", "succeeded", "failed"]
    reason: str = ""
    is_final: bool = False
    has_restarted: bool = False


class JobKind(abc.ABC):
    """A kind of job.

    Attributes:
      name: Value of `training` in a pipeline file.
      title: Kind of its objects, as manifests and people write it.
      name_label, role_label, index_label: Labels of a pod with the name of its job, and
        with role and index of its task.
      success: Type of the condition of a job that has succeeded.
      used_up: Reason of one that has failed after all its restarts; empty if the
        controller restarts nothing.
      install: Advice for a cluster without it.
    """

    name: str
    title: str
    group: str
    version: str
    plural: str
    name_label: str
    role_label: str
    index_label: str
    success: str
    used_up: str
    install: str

    def make_manifest(self, training: Training, settings: KubernetesSettings, step: Step | None = None) -> Document:
        """Makes the manifest of a job, as JSON values.

        `step` is the one that starts it; None outside of a cluster.
        """
        roles = replicas_of_roles(training.distribution)
        templates = {role: _complete_pod_template(role, training, settings, step) for role in roles}
        metadata: Document = {"name": training.name, "labels": dict(settings.labels)}
        if settings.queue:
            metadata["labels"][QUEUE_LABEL] = settings.queue
        if step:
            metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": step.name, "uid": step.uid}]
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.title,
            "metadata": metadata,
            "spec": self.make_spec(training, templates),
        }

    @abc.abstractmethod
    def make_spec(self, training: Training, templates: Mapping[str, Document]) -> Document:
        """Makes the spec of a job's manifest of the pod template of each role."""

    def task_of(self, pod: "client.V1Pod") -> ClusterTask:
        """Returns the task that a job has made a pod for."""
        return ClusterTask(pod.metadata.labels[self.role_label], int(pod.metadata.labels[self.index_label]))

    def read_state(self, job: Mapping[str, Any]) -> JobState:
        """Reads the status of a job."""
        conditions = (job.get("status") or {}).get("conditions") or ()
        holding = {each["type"]: each for each in conditions if each["status"] == "True"}
        # A TFJob has it in its run policy.
        is_suspended = bool((job["spec"].get("runPolicy") or job["spec"]).get("suspend"))
        # Both hold if the chief of a TFJob ended just when another process failed.
        # There is a model then, so success comes first.
        end = holding.get(self.success) or holding.get("Failed")
        if end is None:
            return JobState("suspended" if is_suspended else "active")
        has_restarted = bool(self.used_up) and end.get("reason") == self.used_up
        return JobState(
            phase="succeeded" if self.success in holding else "failed",
            reason=str(end.get("message") or end.get("reason") or ""),
            is_final=bool(self.used_up) and not has_restarted,
            # JobSet suspends Jobs one by one, and the end of those which are not
            # suspended yet counts as a failure.
            has_restarted=has_restarted and not is_suspended,
        )


class JobSet(JobKind):
    """A JobSet with a replicated job for each role, and a Job for each task.

    A Job of several tasks would be Failed only when Kubernetes has ended the pods of
    all of them. By then, processes of other Jobs would have ended too, as they had lost
    the first, and would have had the JobSet restarted although its exit code was final.

    Sources: release 0.10 of https://github.com/kubernetes-sigs/jobset, and
    https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """

    name, title = "jobset", "JobSet"
    group, version, plural = "jobset.x-k8s.io", "v1alpha2", "jobsets"
    name_label, role_label, index_label = f"{_JOBSET}/jobset-name", f"{_JOBSET}/replicatedjob-name", _INDEX
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


class TFJob(JobKind):
    """A TFJob, for whose pods Kubeflow's Training Operator writes TF_CONFIG.

    Sources: release 1.9 of the Training Operator and
    https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
    """

    name, title = "tfjob", "TFJob"
    group, version, plural = "kubeflow.org", "v1", "tfjobs"
    name_label, role_label = f"{_TFJOB}/job-name", f"{_TFJOB}/replica-type"
    index_label = f"{_TFJOB}/replica-index"
    success, used_up = "Succeeded", ""
    install = "install Kubeflow's Training Operator 1.9"

    def make_spec(self, training: Training, templates: Mapping[str, Document]) -> Document:
        """Makes the spec of a TFJob; see `JobKind`."""
        replica_types = {CHIEF: "Chief", WORKER: "Worker", PARAMETER_SERVER: "PS"}
        # The end of any pod ends the TFJob, which the launcher starts again.
        replicas = {
            replica_types[role]: {"replicas": count, "restartPolicy": "Never", "template": templates[role]}
            for role, count in replicas_of_roles(training.distribution).items()
        }
        policy = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": timeouts.KEPT_SECONDS}
        return {"runPolicy": policy, "tfReplicaSpecs": replicas}


JOB_KINDS: dict[str, JobKind] = {kind.name: kind for kind in (JobSet(), TFJob())}
"""Value of `training` -> kind, the preferred one first."""


def _complete_pod_template(role: str, training: Training, settings: KubernetesSettings, step: Step | None) -> Document:
    on_accelerators = uses_accelerators(training.distribution, ClusterTask(role, 0))
    template = copy.deepcopy(dict(settings.worker if on_accelerators else settings.parameter_server))
    (container,) = template["spec"]["containers"]
    container["command"] = ["python", "-m", "tfx_distribute.trainer_module", "--job", training.job_address]
    variables = [{"name": key, "value": value} for key, value in sorted(training.environment.items())]
    container["env"] = [*container.get("env", ()), *variables]
    if step:
        step.complete(template["spec"])
    return template


def _make_replicated_job(role: str, count: int, training: Training, template: Document, cluster: Cluster) -> Document:
    """Returns the replicated job of a role, with its pod template, which it changes."""
    (container,) = template["spec"]["containers"]
    # Kubernetes puts the value of the first variable into the second.
    index = {"name": TASK_INDEX, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_INDEX}']"}}}
    config = cluster.tf_config(ClusterTask(role, 0)).replace('"index": 0', f'"index": $({TASK_INDEX})')
    container["env"] = [index, {"name": TF_CONFIG, "value": config}, *container["env"]]
    template["spec"]["restartPolicy"] = "Never"  # on its machine, it would not find its peers
    is_replaceable = role == WORKER and PARAMETER_SERVER in cluster.addresses
    final_codes = {"containerName": CONTAINER, "operator": "In", "values": list(exit_codes.FINAL)}
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
                "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": final_codes}]},
                "template": template,
            }
        },
    }

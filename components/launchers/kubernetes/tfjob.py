"""Defines TFJobs, which Kubeflow's Training Operator makes pods for.

Sources: release 1.9 of the Training Operator and
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfx_distribute.components.launchers.kubernetes.job_kind import (
    KEPT_SECONDS,
    LONG_AGO,
    WAITS,
    Document,
    JobKind,
    JobState,
    Start,
    Training,
    make_pod_template,
    read_time,
)
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
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
_OUT_OF_TIME = "active longer than specified deadline"  # the operator's words


class TFJob(JobKind):
    """A TFJob. The operator writes TF_CONFIG, and restarts single pods."""

    name, title = "tfjob", "TFJob"
    group, version, plural = "kubeflow.org", "v1", "tfjobs"
    name_label = f"{_LABELS}/job-name"
    controller, controller_namespace = "Kubeflow's Training Operator", "kubeflow"
    install = "install Kubeflow's Training Operator 1.9"
    refusal_reasons = ("FailedCreatePod", "FailedCreateService")
    restarts_itself = False

    def make_spec(self, training: Training, settings: KubernetesSettings) -> Document:
        """Makes the spec of a TFJob; see `JobKind`."""
        policy: Document = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": KEPT_SECONDS}
        if settings.active_deadline_seconds:
            policy["activeDeadlineSeconds"] = settings.active_deadline_seconds
        roles = replicas_of_roles(training.distribution)
        templates = {role: make_pod_template(role, training, settings) for role in roles}
        if settings.scheduling_policy is not None:
            policy["schedulingPolicy"] = {"minAvailable": sum(roles.values()), **settings.scheduling_policy}
            # The operator passes it on to Volcano's PodGroup alone: without Volcano,
            # and for preemption between pods, their own class counts.
            if priority_class := settings.scheduling_policy.get("priorityClass"):
                for template in templates.values():
                    template["spec"].setdefault("priorityClassName", priority_class)
        # The operator restarts a pod after exit codes from 128 on, and gives up after
        # others. Training processes exit with such a code if another attempt may
        # succeed.
        replicas = {
            REPLICA_TYPES[role]: {
                "replicas": count,
                "restartPolicy": "ExitCode",
                "template": templates[role],
            }
            for role, count in roles.items()
        }
        return {"runPolicy": policy, "tfReplicaSpecs": replicas}

    def address_of(self, name: str, task: ClusterTask, namespace: str) -> str:
        """Returns the address of the Service that the operator makes for a pod."""
        return f"{name}-{task.file_name}.{namespace}.svc:2222"

    def pod_templates(self, job: Mapping[str, Any]) -> list[Document]:
        """Returns the pod templates within a manifest."""
        return [replica["template"] for replica in job["spec"]["tfReplicaSpecs"].values()]

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

    def chief_selector(self, name: str) -> str:
        """Returns the label selector for the chief's pod."""
        return f"{self.name_label}={name},{_LABELS}/replica-type={CHIEF}"

    def event_selectors(self, job: Mapping[str, Any]) -> list[str]:
        """Returns the selector of the operator's events, which are about the TFJob."""
        return [f"involvedObject.uid={job['metadata']['uid']}"]

    def read_state(self, job: Mapping[str, Any]) -> JobState:
        """Reads the status of a TFJob: the latest condition that holds is its state."""
        status = job.get("status") or {}
        conditions = status.get("conditions") or ()
        latest = _latest([condition for condition in conditions if condition["status"] == "True"])
        kind, words = latest["type"], str(latest.get("message") or latest.get("reason") or "")
        # A suspended TFJob has an old start time.
        start_time = "" if kind == "Suspended" else str(status.get("startTime") or "")
        suspensions = [condition.get("lastTransitionTime") for condition in conditions if condition["type"] == "Suspended"]
        changes = [read_time(time) for time in (status.get("startTime"), *suspensions) if time]
        return JobState(
            phase={"Succeeded": "succeeded", "Failed": "failed", "Suspended": "suspended"}.get(kind, "active"),  # type: ignore[arg-type]
            words="; ".join([WAITS if kind == "Suspended" else kind, *_count_replicas(status)]),
            reason=words,
            start=Start(job["metadata"]["uid"], start_time),
            changed_at=max(changes, default=LONG_AGO),
            was_seen=bool(status),
            is_suspended=bool((job["spec"].get("runPolicy") or {}).get("suspend")),
            is_final=_OUT_OF_TIME in words,
            # The operator only writes this when Volcano does not let it make pods.
            postponed_at=read_time(status["lastReconcileTime"]) if status.get("lastReconcileTime") else LONG_AGO,
        )


def _latest(holding: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the latest of the conditions that hold: earlier ones stay."""
    # Both hold if the chief ended just when another process failed. There is a model
    # then, so success comes first.
    for last_type in ("Succeeded", "Failed"):
        for condition in holding:
            if condition["type"] == last_type:
                return condition
    return (holding or [{"type": "Created"}])[-1]


def _count_replicas(status: Mapping[str, Any]) -> list[str]:
    """Describes how many replicas of each type there are in which state."""
    replicas = []
    for kind, counts in sorted((status.get("replicaStatuses") or {}).items()):
        states = [f"{counts[name]} {name}" for name in ("active", "succeeded", "failed") if counts.get(name)]
        if states:
            replicas.append(f"{kind} {', '.join(states)}")
    return replicas

"""Defines what the launcher has to know about a kind of job on Kubernetes.

A kind is a custom resource whose controller makes the pods of a training. Pure
functions, without requests to Kubernetes.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tfx_distribute.components.launchers.kubernetes.pod_template import Document, Step, complete_pod_template
from tfx_distribute.components.launchers.kubernetes.settings import QUEUE_LABEL, KubernetesSettings
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.cluster import ClusterTask, replicas_of_roles

if TYPE_CHECKING:
    from kubernetes import client


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

        Raises:
          ConfigurationError: Kubernetes cannot run this distribution.
        """
        strategy_table.check_all_reduce(training.distribution, "Kubeflow")
        roles = replicas_of_roles(training.distribution)
        templates = {role: complete_pod_template(role, training, settings, step) for role in roles}
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

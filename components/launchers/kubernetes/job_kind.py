"""Defines what a launcher has to know about a kind of job on Kubernetes.

A kind is a custom resource whose controller makes the pods of a training. Pure
functions, without requests to Kubernetes.
"""

import abc
import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from tfx_distribute.components.launchers.kubernetes.settings import QUEUE_LABEL, KubernetesSettings
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.cluster import EVALUATOR, PARAMETER_SERVER, WORKER, ClusterTask, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution

if TYPE_CHECKING:
    from kubernetes import client

Document = dict[str, Any]
LONG_AGO = datetime.fromtimestamp(0, timezone.utc)
# How long a job is kept after its end, for people to look at; at most, since Kubeflow
# deletes it with its workflow: from 2.17 on after an hour.
KEPT_SECONDS = 24 * 3600
WAITS = "Suspended: it waits to be admitted"


@dataclass(frozen=True)
class Owner:
    """The pod that owns a job: Kubernetes deletes the job together with it.

    Attributes:
      name: Name of the pod.
      uid: Uid of the pod.
    """

    name: str
    uid: str

    def reference(self) -> Document:
        """Returns the entry for `ownerReferences`."""
        return {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}


@dataclass(frozen=True)
class Training:
    """A training, as its pods run it.

    Attributes:
      name: Name of the job.
      job_address: Path or address of the `TrainingJob` document.
      distribution: Strategy and number of processes.
      environment: Environment variables of each process.
      max_restarts: How many times the cluster may restart by itself.
    """

    name: str
    job_address: str
    distribution: Distribution
    environment: Mapping[str, str]
    max_restarts: int


@dataclass(frozen=True)
class Start:
    """The time when a job was last started.

    Attributes:
      uid: Uid of the job; one that was deleted and created again has another.
      time: Time by the cluster's clock, as the cluster writes it; empty while the job
        is suspended or waits to be started.
    """

    uid: str = ""
    time: str = ""


@dataclass(frozen=True)
class JobState:
    """The state of a job, read from its status.

    Attributes:
      phase: `succeeded`, `failed`, `suspended`, or `active` for all others.
      words: The state, and how many processes of each role there are, for people.
      reason: The controller's words about the state.
      start: When it was last started.
      changed_at: When it was last started, suspended or resumed.
      was_seen: True if the controller has seen the job.
      is_suspended: True if it shall have no pods. While the cluster refuses those of a
        resumed job, the phase may still be `suspended`.
      is_final: True if the controller itself has given up a failed job for good.
      restarts_used_up: True if it has given it up as the job has failed too often.
      postponed_at: When the controller last put off making pods.
    """

    phase: Literal["active", "suspended", "succeeded", "failed"]
    words: str
    reason: str
    start: Start
    changed_at: datetime
    was_seen: bool
    is_suspended: bool
    is_final: bool = False
    restarts_used_up: bool = False
    postponed_at: datetime = LONG_AGO


class JobKind(abc.ABC):
    """A kind of job.

    Attributes:
      name: Value of `training` in a pipeline file.
      title: Kind of its objects, as manifests and people write it.
      group: Group of its API.
      version: Version of its API.
      plural: Name of the resource.
      name_label: Label of a pod with the name of its job.
      controller: Name of the program that makes the pods.
      controller_namespace: Namespace where that usually runs.
      install: Advice for a cluster without it.
      refusal_reasons: Reasons of events that say why it could not make a pod.
      restarts_itself: True if the controller counts restarts and makes new pods for
        ones that were taken away; False if the launcher has to.
    """

    name: str
    title: str
    group: str
    version: str
    plural: str
    name_label: str
    controller: str
    controller_namespace: str
    install: str
    refusal_reasons: tuple[str, ...]
    restarts_itself: bool

    @property
    def api_version(self) -> str:
        """Group and version of the API, as a manifest has them."""
        return f"{self.group}/{self.version}"

    def make_manifest(self, training: Training, settings: KubernetesSettings, owner: Owner | None = None) -> Document:
        """Makes the manifest of a job.

        Args:
          training: Command, environment and number of processes.
          settings: Pods, and how they are scheduled.
          owner: Pod that owns the job; None for a job that stays by itself.

        Returns:
          The manifest, as JSON values.

        Raises:
          ConfigurationError: Kubernetes cannot run this distribution.
        """
        strategy_table.check_all_reduce(training.distribution, "Kubeflow")
        return {
            "apiVersion": self.api_version,
            "kind": self.title,
            "metadata": _make_metadata(training.name, settings, owner),
            "spec": self.make_spec(training, settings),
        }

    @abc.abstractmethod
    def make_spec(self, training: Training, settings: KubernetesSettings) -> Document:
        """Makes the spec of a job's manifest; see `make_manifest`."""

    @abc.abstractmethod
    def address_of(self, name: str, task: ClusterTask, namespace: str) -> str:
        """Returns the address that TF_CONFIG has for a process of a job.

        Args:
          name: Name of the job.
          task: The process.
          namespace: Namespace of the job.
        """

    @abc.abstractmethod
    def pod_templates(self, job: Mapping[str, Any]) -> list[Document]:
        """Returns the pod templates within a manifest, to read or to change."""

    @abc.abstractmethod
    def list_tasks(self, job: Mapping[str, Any]) -> frozenset[ClusterTask]:
        """Returns the tasks that a job shall have a pod for."""

    def see_controller(self) -> str:
        """Returns the advice to look at the controller."""
        return f"see whether the pods of {self.controller} run, usually in namespace {self.controller_namespace}"

    def list_replaceable(self, job: Mapping[str, Any]) -> frozenset[ClusterTask]:
        """Returns the tasks whose processes a training can replace while it runs."""
        tasks = self.list_tasks(job)
        roles = {task.role for task in tasks}
        return frozenset(task for task in tasks if is_replaceable(task.role, roles))

    @abc.abstractmethod
    def task_of(self, pod: "client.V1Pod") -> ClusterTask:
        """Returns the task that a job has made a pod for."""

    @abc.abstractmethod
    def chief_selector(self, name: str) -> str:
        """Returns the label selector for the chief's pod of the job of a name."""

    @abc.abstractmethod
    def event_selectors(self, job: Mapping[str, Any]) -> list[str]:
        """Returns field selectors of the events that say why pods are not made.

        Of those that they select, the ones count that are about the job, or about an
        object whose name begins with the job's and a dash.
        """

    @abc.abstractmethod
    def read_state(self, job: Mapping[str, Any]) -> JobState:
        """Reads the status of a job."""


def _make_metadata(name: str, settings: KubernetesSettings, owner: Owner | None) -> Document:
    """Returns the metadata of a job."""
    metadata: Document = {"name": name, "labels": dict(settings.labels)}
    if settings.queue:
        metadata["labels"][QUEUE_LABEL] = settings.queue
    if owner:
        # When the pod is deleted with its run, Kubernetes deletes the job too.
        metadata["ownerReferences"] = [owner.reference()]
    return metadata


def make_pod_template(role: str, training: Training, settings: KubernetesSettings) -> Document:
    """Returns the pod template of a role, with the command of a training process."""
    on_accelerators = uses_accelerators(training.distribution, ClusterTask(role, 0))
    template = copy.deepcopy(dict(settings.worker if on_accelerators else settings.parameter_server))
    (container,) = template["spec"]["containers"]
    container["command"] = ["python", "-m", "tfx_distribute.trainer_module", "--job", training.job_address]
    variables = [{"name": key, "value": value} for key, value in sorted(training.environment.items())]
    container["env"] = [*container.get("env", ()), *variables]
    return template


def is_replaceable(role: str, roles: Collection[str]) -> bool:
    """Returns True if training goes on without a task until it has another pod.

    That holds for evaluators and, with parameter servers, for workers.

    Args:
      role: Role of the task.
      roles: All roles of the cluster.
    """
    return role == EVALUATOR or (role == WORKER and PARAMETER_SERVER in roles)


def read_time(text: str) -> datetime:
    """Reads a time as Kubernetes writes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))

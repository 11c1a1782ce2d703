"""Defines the settings of training on Kubernetes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

CONTAINER = "tensorflow"  # the Training Operator looks for a container of this name
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class KubernetesSettings:
    """Settings of training on Kubernetes: pods, and how they are scheduled.

    Attributes:
      name: First part of the names of jobs: the name of the pipeline.
      worker: Pod of each training process and of the evaluator: a PodTemplateSpec with
        one container, `tensorflow`.
      parameter_server: Pod of each parameter server, and of a chief that only
        coordinates.
      training: `step` for processes in the Trainer's own step; `tfjob` or `jobset` for
        pods; or `auto`: in the step if it is a single process, else in pods of a TFJob
        where the cluster has them, or of a JobSet. `pods` is `auto`, but never in the
        step.
      training_dir: Folder or gs:// address that all pods can reach; None if they can
        reach the artifacts' own addresses.
      labels: Labels of the job.
      queue: Local queue of Kueue; None without Kueue.
      scheduling_policy: The Training Operator's schedulingPolicy, with which all pods
        start together; None if each pod starts by itself.
      active_deadline_seconds: Seconds after which the job fails; None for no limit.
      quota_timeout_seconds: Seconds to wait while a quota refuses pods.
      kind: Tells the kinds of settings apart in their JSON document.
    """

    name: str
    worker: Mapping[str, Any]
    parameter_server: Mapping[str, Any]
    training: Literal["auto", "step", "pods", "tfjob", "jobset"] = "auto"
    training_dir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    scheduling_policy: Mapping[str, Any] | None = None
    active_deadline_seconds: int | None = None
    quota_timeout_seconds: int = 3600
    kind: Literal["kubernetes"] = "kubernetes"

"""Defines the settings of training on Kubernetes."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

from tfx_distribute.components.launchers.launcher import LauncherSettings

CONTAINER = "tensorflow"  # the Training Operator looks for a container of this name
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class KubernetesSettings(LauncherSettings):
    """Settings of training on Kubernetes: pods, and how they are scheduled.

    Attributes:
      worker: Pod of each training process: a PodTemplateSpec with
        one container, `tensorflow`.
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

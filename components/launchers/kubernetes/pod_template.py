"""Completes the pods of a training. Pure functions, without requests to Kubernetes.

A pipeline file's settings become a pod template when it is compiled, and the launcher
completes it with what is known only then: the command of a process, and the rights of
the step that starts it.
"""

import copy
from dataclasses import dataclass
from typing import Any

from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import ClusterTask, uses_accelerators

Document = dict[str, Any]


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
        """Adds the step's rights to the spec of a pod, where it has none of its own.

        Raises:
          ConfigurationError: This step runs as root, and the pod must not.
        """
        pod.setdefault("serviceAccountName", self.account)
        context = pod.get("securityContext", {})
        if "runAsUser" in context:
            return
        if self.user:
            pod["securityContext"] = {"runAsUser": self.user, "runAsGroup": self.group, **context}
        elif context.get("runAsNonRoot"):
            raise ConfigurationError(
                "targets.kubeflow.security_context: this step runs as root, and pods of a training must not; give the image "
                "a USER that is a number and not 0, as tfx-distribute's Dockerfile does, or write run_as_non_root: false"
            )


def complete_pod_template(role: str, training: Training, settings: KubernetesSettings, step: Step | None) -> Document:
    """Returns the pod template of a role, with the command of a training process."""
    on_accelerators = uses_accelerators(training.distribution, ClusterTask(role, 0))
    template = copy.deepcopy(dict(settings.worker if on_accelerators else settings.parameter_server))
    (container,) = template["spec"]["containers"]
    container["command"] = ["python", "-m", "tfx_distribute.trainer_module", "--job", training.job_address]
    variables = [{"name": key, "value": value} for key, value in sorted(training.environment.items())]
    container["env"] = [*container.get("env", ()), *variables]
    if step:
        step.complete(template["spec"])
    return template

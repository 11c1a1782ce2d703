"""Makes the pods of a training. Pure functions, without requests to Kubernetes.

A pipeline file's settings become a pod template when it is compiled, and the launcher
completes it with what is known only then: the command of a process, and the rights of
the step that starts it.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import accelerators
from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER, KubernetesSettings
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS, ClusterTask, uses_accelerators
from tfx_distribute.trainer_module.liveness import termination
from tfx_distribute.trainer_module.reporting import metrics_server

Document = dict[str, Any]

SHARED_MEMORY = "dshm"  # name of the volume
# In namespaces of a multi-user installation, Istio's proxy next to each container would
# keep the pod running after training.
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
# With the pod's security context, it is what namespaces of the level `restricted` want.
NO_PRIVILEGES: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@dataclass(frozen=True)
class Machine:
    """A `MachineSpec` in the terms of Kubernetes.

    Attributes:
      node_affinity: Label of a Kubernetes node -> allowed values.
      shared_memory: Size of `/dev/shm`, empty for no limit; None for the container's
        default.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    shared_memory: str | None = None

    @property
    def grace(self) -> dict[str, str]:
        """Environment variable with the time to end in; empty for the usual time."""
        is_spot = self.node_selector.get(accelerators.SPOT_LABEL) == "true"
        return {termination.GRACE: str(timeouts.SPOT_GRACE_SECONDS)} if is_spot else {}


@dataclass(frozen=True)
class PodSettings:
    """Settings that all pods of a training share.

    Attributes:
      claims: Folder -> persistent volume claim that is mounted there.
      secrets: Environment variable -> name and key of a secret.
      service_account: Service account; None for that of the step.
      metrics_port: Port that serves the progress for Prometheus; None for no port.
      fs_group: Group that owns the volumes; None to leave them as they are.
    """

    image: str
    claims: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    image_pull_secrets: Sequence[str] = ()
    service_account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    metrics_port: int | None = None
    run_as_non_root: bool = True
    fs_group: int | None = None


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


def make_pod_template(machine: Machine, pod: PodSettings) -> Document:
    """Returns the pod template of a training process, without its command.

    The container has the name that the Training Operator requires.
    """
    volumes: list[Document] = []
    mounts: list[Document] = []
    for position, (folder, claim) in enumerate(pod.claims.items()):
        volumes.append({"name": f"volume-{position}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": f"volume-{position}", "mountPath": folder})
    if machine.shared_memory is not None:
        size = {"sizeLimit": machine.shared_memory} if machine.shared_memory else {}
        volumes.append({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", **size}})
        mounts.append({"name": SHARED_MEMORY, "mountPath": "/dev/shm"})  # noqa: S108
    values: dict[str, str] = {}
    for resource, count in machine.limits.items():
        if resource.startswith(accelerators.GPU_RESOURCE_PREFIX):
            values[REQUESTED_GPUS] = count
    values |= {**machine.grace, **pod.variables}
    annotations = dict(NO_SIDECAR)
    container: Document = {"name": CONTAINER, "image": pod.image, "securityContext": NO_PRIVILEGES}
    if pod.metrics_port:
        values |= {
            metrics_server.PORT_VARIABLE: str(pod.metrics_port),
            metrics_server.ADDRESS_VARIABLE: metrics_server.EVERY_ADDRESS,  # Prometheus is in another pod
        }
        container["ports"] = [{"name": "metrics", "containerPort": pod.metrics_port}]
        # Annotations that the charts of Prometheus look for. Source:
        # https://github.com/prometheus-community/helm-charts/blob/main/charts/prometheus/README.md
        annotations |= {"prometheus.io/scrape": "true", "prometheus.io/port": str(pod.metrics_port)}
    environment: list[Document] = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
        for variable, (name, key) in pod.secrets.items()
    ]
    environment += [{"name": variable, "value": value} for variable, value in values.items()]
    if environment:
        container["env"] = environment
    if machine.limits:
        container["resources"] = {"limits": dict(machine.limits)}
    if mounts:
        container["volumeMounts"] = mounts
    security: Document = {"runAsNonRoot": pod.run_as_non_root, "seccompProfile": {"type": "RuntimeDefault"}}
    if pod.fs_group is not None:
        # Without the policy, each start of a pod would change the owner of each file.
        security |= {"fsGroup": pod.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    spec: Document = {"containers": [container], "securityContext": security}
    if volumes:
        spec["volumes"] = volumes
    if machine.node_selector:
        spec["nodeSelector"] = dict(machine.node_selector)
    if machine.node_affinity:
        terms = [{"matchExpressions": make_expressions(machine)}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if machine.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in machine.tolerations]
    if pod.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pod.image_pull_secrets]
    if pod.service_account:
        spec["serviceAccountName"] = pod.service_account
    return {"metadata": {"annotations": {**annotations, **pod.annotations}, "labels": dict(pod.labels)}, "spec": spec}


def make_expressions(machine: Machine) -> list[Document]:
    """Returns the node affinity of a machine in the terms of Kubernetes."""
    return [{"key": key, "operator": "In", "values": list(values)} for key, values in machine.node_affinity.items()]


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

"""Converts machines of a pipeline file for Kubernetes and Kubeflow Pipelines. Pure.

The pipeline's document has a step's resources, in two generations of fields. A second
document, the platform spec, says where the step runs; the backend reads it as
KubernetesExecutorConfig
(`kubernetes_platform/proto/kubernetes_executor_config.proto` of
github.com/kubeflow/pipelines). For the pods of a training, the same settings become a
pod template.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec, number
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings, SecurityContext
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS
from tfx_distribute.trainer_module.lifecycle import metrics_server, process_log, termination

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
      limits: Resource -> quantity.
      node_selector: Labels that a Kubernetes node must have.
      node_affinity: Label of a Kubernetes node -> allowed values.
      tolerations: Taints of Kubernetes nodes that are tolerated.
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
        return {termination.GRACE: str(accelerators.SPOT_GRACE_SECONDS)} if is_spot else {}


def make_machine(machine: MachineSpec, platform: accelerators.Cluster) -> Machine:
    """Converts a machine of a pipeline file to the terms of Kubernetes.

    Args:
      machine: The machine in the pipeline file.
      platform: `kubernetes` or `gke`.

    Raises:
      ConfigurationError: The platform has no such accelerator, topology or spot
        machine.
    """
    limits = {name: value for name, value in (("cpu", machine.cpu), ("memory", machine.memory)) if value}
    user_tolerations = [
        {name: value for name, value in toleration.model_dump().items() if value} for toleration in machine.tolerations
    ]
    shared_memory = machine.shared_memory
    accelerators.check(machine.accelerator, machine.accelerator_count, machine.topology, platform, machine.spot)
    if machine.accelerator:
        count = accelerators.count_devices(machine.accelerator, machine.accelerator_count, machine.topology)
        limits[accelerators.get_resource_name(machine.accelerator)] = str(count)
        shared_memory = shared_memory or ""
    selector = accelerators.make_node_selector(machine.accelerator, machine.topology, machine.spot, platform)
    affinity = accelerators.make_node_affinity(machine.accelerator, platform)
    return Machine(
        limits=limits,
        node_selector={**selector, **machine.node_selector},
        # A shared GPU, or a part of one, has another label, which the user chooses.
        node_affinity={label: values for label, values in affinity.items() if label not in machine.node_selector},
        tolerations=(*accelerators.make_tolerations(machine.accelerator, machine.spot, platform), *user_tolerations),
        shared_memory=shared_memory,
    )


def make_resource_spec(machine: Machine) -> Document:
    """Returns the resources of a step, in both current and older fields.

    The backend reads the current fields first.

    The accelerator's type is the name of a Kubernetes resource, not Vertex AI's name.
    """
    spec: Document = {}
    if "cpu" in machine.limits:
        spec |= {"resourceCpuLimit": machine.limits["cpu"], "cpuLimit": float(number(machine.limits["cpu"]))}
    if "memory" in machine.limits:
        gigabytes = float(number(machine.limits["memory"]) / 10**9)
        spec |= {"resourceMemoryLimit": machine.limits["memory"], "memoryLimit": gigabytes}
    for name, count in machine.limits.items():
        if "/" in name:
            spec["accelerator"] = {"resourceType": name, "resourceCount": count, "type": name, "count": int(count)}
    return spec


def complete_resource_spec(tfx_spec: Document) -> Document:
    """Adds the fields that the backend reads first to a ResourceSpec of TFX.

    Args:
      tfx_spec: A ResourceSpec, as TFX's `with_platform_config` takes it.
    """
    limits = {}
    if "cpuLimit" in tfx_spec:
        limits["cpu"] = f"{tfx_spec['cpuLimit']:g}"
    if "memoryLimit" in tfx_spec:
        limits["memory"] = f"{tfx_spec['memoryLimit']:g}G"
    if "accelerator" in tfx_spec:
        limits[tfx_spec["accelerator"]["type"]] = str(tfx_spec["accelerator"].get("count", 1))
    return {**tfx_spec, **make_resource_spec(Machine(limits))}


def make_executor_config(machine: Machine, target: KubeflowSettings, labels: Mapping[str, str]) -> Document:
    """Returns a step's entry in the platform spec.

    Args:
      machine: The step's machine.
      target: Settings of all steps.
      labels: Labels of the step's pod.
    """
    config: Document = {}
    if machine.node_selector:
        config["nodeSelector"] = {"labels": dict(machine.node_selector)}
    if machine.node_affinity:
        config["nodeAffinity"] = [{"matchExpressions": _make_expressions(machine)}]
    if machine.tolerations:
        config["tolerations"] = [dict(toleration) for toleration in machine.tolerations]
    if machine.shared_memory is not None:
        size = {"sizeLimit": machine.shared_memory} if machine.shared_memory else {}
        mount = {"volumeName": SHARED_MEMORY, "mountPath": "/dev/shm", "medium": "Memory", **size}  # noqa: S108
        config["emptyDirMounts"] = [mount]
    if target.volumes:
        config["pvcMount"] = [
            {"mountPath": volume.mount_path, "pvcNameParameter": _make_constant(volume.claim), "constant": volume.claim}
            for volume in target.volumes
        ]
    if target.secrets:
        config["secretAsEnv"] = [
            {
                "secretName": secret.name,
                "secretNameParameter": _make_constant(secret.name),
                "keyToEnv": [{"envVar": variable, "secretKey": key} for variable, key in sorted(secret.env.items())],
            }
            for secret in target.secrets
        ]
    if target.image_pull_secrets:
        config["imagePullSecret"] = [
            {"secretName": name, "secretNameParameter": _make_constant(name)} for name in target.image_pull_secrets
        ]
    metadata = {"labels": dict(labels), "annotations": dict(target.annotations)}
    metadata = {name: values for name, values in metadata.items() if values}
    if metadata:
        config["podMetadata"] = metadata
    # Only on request: versions before 2.16 do not know the field, and two of them
    # refuse pipelines with unknown fields.
    security = {
        "runAsUser": target.security_context.run_as_user,
        "runAsGroup": target.security_context.run_as_group,
        # False is the default, and must not have older versions refuse the pipeline.
        "runAsNonRoot": target.security_context.run_as_non_root or None,
    }
    security = {name: value for name, value in security.items() if value is not None}
    if security:
        config["securityContext"] = security
    return config


def make_pod_template(machine: Machine, target: KubeflowSettings) -> Document:
    """Returns the pod template of a training process, without its command.

    The container has the name that the Training Operator requires.
    """
    volumes: list[Document] = []
    mounts: list[Document] = []
    for position, volume in enumerate(target.volumes):
        volumes.append({"name": f"volume-{position}", "persistentVolumeClaim": {"claimName": volume.claim}})
        mounts.append({"name": f"volume-{position}", "mountPath": volume.mount_path})
    if machine.shared_memory is not None:
        size = {"sizeLimit": machine.shared_memory} if machine.shared_memory else {}
        volumes.append({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", **size}})
        mounts.append({"name": SHARED_MEMORY, "mountPath": "/dev/shm"})  # noqa: S108
    environment: list[Document] = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": key}}}
        for secret in target.secrets
        for variable, key in sorted(secret.env.items())
    ]
    gpus = [count for name, count in machine.limits.items() if name.startswith(accelerators.GPU_RESOURCE_PREFIX)]
    environment += [{"name": REQUESTED_GPUS, "value": count} for count in gpus]
    environment += [{"name": name, "value": value} for name, value in machine.grace.items()]
    container: Document = {"name": CONTAINER, "image": target.image, "securityContext": NO_PRIVILEGES}
    if target.log_format != "text":
        environment.append({"name": process_log.FORMAT_VARIABLE, "value": target.log_format})
    annotations = dict(NO_SIDECAR)
    if target.metrics_port:
        environment += [
            {"name": metrics_server.PORT_VARIABLE, "value": str(target.metrics_port)},
            {"name": metrics_server.ADDRESS_VARIABLE, "value": metrics_server.EVERY_ADDRESS},  # Prometheus is in another pod
        ]
        container["ports"] = [{"name": "metrics", "containerPort": target.metrics_port}]
        # Annotations that the charts of Prometheus look for. Source:
        # https://github.com/prometheus-community/helm-charts/blob/main/charts/prometheus/README.md
        annotations |= {"prometheus.io/scrape": "true", "prometheus.io/port": str(target.metrics_port)}
    annotations |= target.annotations
    if environment:
        container["env"] = environment
    if machine.limits:
        container["resources"] = {"limits": dict(machine.limits)}
    if mounts:
        container["volumeMounts"] = mounts
    spec: Document = {"containers": [container], "securityContext": _make_security_context(target.security_context)}
    if volumes:
        spec["volumes"] = volumes
    if machine.node_selector:
        spec["nodeSelector"] = dict(machine.node_selector)
    if machine.node_affinity:
        terms = [{"matchExpressions": _make_expressions(machine)}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if machine.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in machine.tolerations]
    if target.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in target.image_pull_secrets]
    if target.service_account:
        spec["serviceAccountName"] = target.service_account
    return {"metadata": {"annotations": annotations, "labels": dict(target.labels)}, "spec": spec}


def _make_security_context(settings: SecurityContext) -> Document:
    """Returns the security context of a training's pod.

    Its user is that of the step which starts the training: the two exchange files.
    """
    context: Document = {
        "runAsNonRoot": settings.run_as_non_root is not False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if settings.fs_group is not None:
        # Without the policy, each start of a pod would change the owner of each file.
        context |= {"fsGroup": settings.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    return context


def _make_expressions(machine: Machine) -> list[Document]:
    return [{"key": key, "operator": "In", "values": list(values)} for key, values in machine.node_affinity.items()]


def _make_constant(value: str) -> Document:
    return {"runtimeValue": {"constant": value}}

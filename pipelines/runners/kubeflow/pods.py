"""What a pipeline file says of machines -> what Kubernetes and Kubeflow Pipelines are told. Pure.

A step's resources are in the pipeline's own document, in two generations of fields; where it runs is in a second document,
the platform spec, which the backend reads as KubernetesExecutorConfig (`kubernetes_platform/proto/
kubernetes_executor_config.proto` of github.com/kubeflow/pipelines). Pods of a TFJob are told the same in Kubernetes's words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfx_distribute.components.launchers.tfjob.manifest import CONTAINER
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.runners.kubeflow.settings import KubeflowSettings
from tfx_distribute.pipelines.spec.machines import MachineSpec, number

Document = dict[str, Any]

SHARED_MEMORY = "dshm"  # name of the volume
# In namespaces of several users, a proxy beside each container would go on when the training is done.
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}


@dataclass(frozen=True)
class Machine:
    """A `MachineSpec`, in Kubernetes's words.

    Attributes:
      limits: Resource -> quantity.
      node_selector: Labels of nodes.
      node_affinity: Label of nodes -> values, one of which it has to have.
      tolerations: Taints of nodes that do not matter.
      shared_memory: Size of `/dev/shm`, empty for any; None where the container's own will do.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    shared_memory: str | None = None


def machine(node: MachineSpec, platform: accelerators.Cluster) -> Machine:
    """Finds out what a node is called.

    Args:
      node: The node.
      platform: `kubernetes` or `gke`.

    Raises:
      ConfigurationError: The platform has no such accelerator, topology or spot machine.
    """
    limits = {name: value for name, value in (("cpu", node.cpu), ("memory", node.memory)) if value}
    own = [{name: value for name, value in given.model_dump().items() if value} for given in node.tolerations]
    shared_memory = node.shared_memory
    accelerators.check(node.accelerator, node.accelerator_count, node.topology, platform, node.spot)
    if node.accelerator:
        count = accelerators.count(node.accelerator, node.accelerator_count, node.topology)
        limits[accelerators.resource(node.accelerator)] = str(count)
        shared_memory = shared_memory or ""
    selector = accelerators.node_selector(node.accelerator, node.topology, node.spot, platform)
    return Machine(
        limits=limits,
        node_selector={**selector, **node.node_selector},
        node_affinity=accelerators.node_affinity(node.accelerator, platform),
        tolerations=(*accelerators.tolerations(node.accelerator, node.spot, platform), *own),
        shared_memory=shared_memory,
    )


def resource_spec(machine: Machine) -> Document:
    """A step's resources, as its executor has them: the fields that the backend reads first, and those of before.

    The accelerator's type is the name of a Kubernetes resource; Vertex AI's names are other ones.
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


def resource_spec_of_tfx(given: Document) -> Document:
    """A ResourceSpec as TFX's `with_platform_config` takes it, with the fields that the backend reads first."""
    limits = {}
    if "cpuLimit" in given:
        limits["cpu"] = f"{given['cpuLimit']:g}"
    if "memoryLimit" in given:
        limits["memory"] = f"{given['memoryLimit']:g}G"
    if "accelerator" in given:
        limits[given["accelerator"]["type"]] = str(given["accelerator"].get("count", 1))
    return {**given, **resource_spec(Machine(limits))}


def executor_config(machine: Machine, target: KubeflowSettings, labels: Mapping[str, str]) -> Document:
    """A step's entry in the platform spec.

    Args:
      machine: Where it runs.
      target: What all steps have in common.
      labels: Labels of its pod.
    """
    config: Document = {}
    if machine.node_selector:
        config["nodeSelector"] = {"labels": dict(machine.node_selector)}
    if machine.node_affinity:
        config["nodeAffinity"] = [{"matchExpressions": _expressions(machine)}]
    if machine.tolerations:
        config["tolerations"] = [dict(toleration) for toleration in machine.tolerations]
    if machine.shared_memory is not None:
        size = {"sizeLimit": machine.shared_memory} if machine.shared_memory else {}
        mount = {"volumeName": SHARED_MEMORY, "mountPath": "/dev/shm", "medium": "Memory", **size}  # noqa: S108
        config["emptyDirMounts"] = [mount]
    if target.volumes:
        config["pvcMount"] = [
            {"mountPath": volume.mount_path, "pvcNameParameter": _constant(volume.claim), "constant": volume.claim}
            for volume in target.volumes
        ]
    if target.secrets:
        config["secretAsEnv"] = [
            {
                "secretName": secret.name,
                "secretNameParameter": _constant(secret.name),
                "keyToEnv": [{"envVar": variable, "secretKey": key} for variable, key in sorted(secret.env.items())],
            }
            for secret in target.secrets
        ]
    if target.image_pull_secrets:
        config["imagePullSecret"] = [
            {"secretName": name, "secretNameParameter": _constant(name)} for name in target.image_pull_secrets
        ]
    if labels:
        config["podMetadata"] = {"labels": dict(labels)}
    return config


def pod_template(machine: Machine, target: KubeflowSettings) -> Document:
    """The pod of a training process, but for what it runs; the container is called as the Training Operator wants it."""
    volumes: list[Document] = []
    mounts: list[Document] = []
    for position, volume in enumerate(target.volumes):
        volumes.append({"name": f"volume-{position}", "persistentVolumeClaim": {"claimName": volume.claim}})
        mounts.append({"name": f"volume-{position}", "mountPath": volume.mount_path})
    if machine.shared_memory is not None:
        size = {"sizeLimit": machine.shared_memory} if machine.shared_memory else {}
        volumes.append({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", **size}})
        mounts.append({"name": SHARED_MEMORY, "mountPath": "/dev/shm"})  # noqa: S108
    environment = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": key}}}
        for secret in target.secrets
        for variable, key in sorted(secret.env.items())
    ]
    container: Document = {"name": CONTAINER, "image": target.image}
    if environment:
        container["env"] = environment
    if machine.limits:
        container["resources"] = {"limits": dict(machine.limits)}
    if mounts:
        container["volumeMounts"] = mounts
    spec: Document = {"containers": [container]}
    if volumes:
        spec["volumes"] = volumes
    if machine.node_selector:
        spec["nodeSelector"] = dict(machine.node_selector)
    if machine.node_affinity:
        terms = [{"matchExpressions": _expressions(machine)}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if machine.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in machine.tolerations]
    if target.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in target.image_pull_secrets]
    if target.service_account:
        spec["serviceAccountName"] = target.service_account
    return {"metadata": {"annotations": NO_SIDECAR, "labels": dict(target.labels)}, "spec": spec}


def _expressions(machine: Machine) -> list[Document]:
    return [{"key": key, "operator": "In", "values": list(values)} for key, values in machine.node_affinity.items()]


def _constant(value: str) -> Document:
    return {"runtimeValue": {"constant": value}}

"""Makes the pods of the pipeline's steps. Pure functions.

The pipeline's document has a step's resources, in two generations of fields. A second
document, the platform spec, says where the step runs; the backend reads it as
KubernetesExecutorConfig
(`kubernetes_platform/proto/kubernetes_executor_config.proto` of
github.com/kubeflow/pipelines). `pod_template` makes those of a training.
"""

from collections.abc import Mapping

from tfx_distribute.pipelines.spec.machines import number
from tfx_distribute.pipelines.targets.kubeflow.machines import SHARED_MEMORY, Document, Machine, make_expressions
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings


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


def make_executor_config(machine: Machine, target: KubeflowSettings, labels: Mapping[str, str]) -> Document:
    """Returns a step's entry in the platform spec; its pod gets `labels`."""
    config: Document = {}
    if machine.node_selector:
        config["nodeSelector"] = {"labels": dict(machine.node_selector)}
    if machine.node_affinity:
        config["nodeAffinity"] = [{"matchExpressions": make_expressions(machine)}]
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


def _make_constant(value: str) -> Document:
    return {"runtimeValue": {"constant": value}}

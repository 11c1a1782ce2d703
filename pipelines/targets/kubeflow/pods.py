"""Makes the pods of the pipeline's steps. Pure functions.

The pipeline's document has a step's resources, in two generations of fields. A second
document, the platform spec, says where the step runs; the backend reads it as
KubernetesExecutorConfig
(`kubernetes_platform/proto/kubernetes_executor_config.proto` of
github.com/kubeflow/pipelines). `pod_template` makes those of a training.
"""

from collections.abc import Mapping

from tfx_distribute.pipelines.spec.machines import MachineSpec, number
from tfx_distribute.pipelines.targets.kubeflow import machines
from tfx_distribute.pipelines.targets.kubeflow.machines import SHARED_MEMORY, Document
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings


def make_resource_spec(machine: MachineSpec) -> Document:
    """Returns the resources of a step, in both current and older fields.

    The backend reads the current fields first.

    The accelerator's type is the name of a Kubernetes resource, not Vertex AI's name.
    """
    spec: Document = {}
    if machine.cpu:
        spec |= {"resourceCpuLimit": machine.cpu, "cpuLimit": float(number(machine.cpu))}
    if machine.memory:
        spec |= {"resourceMemoryLimit": machine.memory, "memoryLimit": float(number(machine.memory) / 10**9)}
    for name, count in machines.make_limits(machine).items():
        if "/" in name:
            spec["accelerator"] = {"resourceType": name, "resourceCount": count, "type": name, "count": int(count)}
    return spec


def make_executor_config(machine: MachineSpec, target: KubeflowSettings, labels: Mapping[str, str]) -> Document:
    """Returns a step's entry in the platform spec; its pod gets `labels`."""
    config: Document = {}
    if node_selector := machines.make_node_selector(machine):
        config["nodeSelector"] = {"labels": node_selector}
    if tolerations := machines.make_tolerations(machine):
        config["tolerations"] = tolerations
    if shared_memory := machines.make_shared_memory(machine):
        config["emptyDirMounts"] = [{"volumeName": SHARED_MEMORY, "mountPath": "/dev/shm", **shared_memory}]  # noqa: S108
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

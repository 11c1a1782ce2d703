"""Makes the pods of the pipeline's steps. Pure functions.

The pipeline's document has a step's resources, in two generations of fields. A second
document, the platform spec, says where the step runs; the backend reads it as
KubernetesExecutorConfig
(`kubernetes_platform/proto/kubernetes_executor_config.proto` of
github.com/kubeflow/pipelines). `training` makes those of a training.
"""

from collections.abc import Mapping

from tfx_distribute.pipelines.spec.machines import MachineSpec, number
from tfx_distribute.pipelines.targets.kubeflow import machines
from tfx_distribute.pipelines.targets.kubeflow.machines import SHARED_MEMORY, Document, keep_set
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
    # Only on request: versions before 2.16 do not know the field, and two of them
    # refuse pipelines with unknown fields.
    security = {
        "runAsUser": target.security_context.run_as_user,
        "runAsGroup": target.security_context.run_as_group,
        # False is the default, and must not have older versions refuse the pipeline.
        "runAsNonRoot": target.security_context.run_as_non_root or None,
    }
    shared_memory = machines.make_shared_memory(machine)
    if shared_memory:
        shared_memory = {"volumeName": "dshm", "mountPath": SHARED_MEMORY, **shared_memory}
    return keep_set(
        nodeSelector=keep_set(labels=machines.make_node_selector(machine)),
        tolerations=machines.make_tolerations(machine),
        emptyDirMounts=[shared_memory] if shared_memory else [],
        pvcMount=[
            {"mountPath": volume.mount_path, "pvcNameParameter": _make_constant(volume.claim), "constant": volume.claim}
            for volume in target.volumes
        ],
        secretAsEnv=[
            {
                "secretName": secret.name,
                "secretNameParameter": _make_constant(secret.name),
                "keyToEnv": [{"envVar": variable, "secretKey": key} for variable, key in sorted(secret.env.items())],
            }
            for secret in target.secrets
        ],
        imagePullSecret=[
            {"secretName": name, "secretNameParameter": _make_constant(name)} for name in target.image_pull_secrets
        ],
        podMetadata=keep_set(labels=dict(labels), annotations=target.annotations),
        securityContext={name: value for name, value in security.items() if value is not None},
    )


def _make_constant(value: str) -> Document:
    return {"runtimeValue": {"constant": value}}

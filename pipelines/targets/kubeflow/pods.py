"""Converts machines of a pipeline file for Kubernetes and Kubeflow Pipelines. Pure.

The pipeline's document has a step's resources, in two generations of fields. A second
document, the platform spec, says where the step runs; the backend reads it as
KubernetesExecutorConfig
(`kubernetes_platform/proto/kubernetes_executor_config.proto` of
github.com/kubeflow/pipelines). The pods of a training have the same machines.
"""

from collections.abc import Mapping

from tfx_distribute.components.launchers import accelerators
from tfx_distribute.components.launchers.kubernetes.pod_template import (
    SHARED_MEMORY,
    Document,
    Machine,
    PodSettings,
    make_expressions,
)
from tfx_distribute.pipelines.spec.machines import MachineSpec, number
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.reporting import process_log


def make_machine(machine: MachineSpec, platform: accelerators.Cluster) -> Machine:
    """Converts a machine of a pipeline file to the terms of Kubernetes.

    Raises a ConfigurationError if the platform has no such accelerator, topology or
    spot machine.
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
    """Adds the fields that the backend reads first to a ResourceSpec of TFX."""
    limits = {}
    if "cpuLimit" in tfx_spec:
        limits["cpu"] = f"{tfx_spec['cpuLimit']:g}"
    if "memoryLimit" in tfx_spec:
        limits["memory"] = f"{tfx_spec['memoryLimit']:g}G"
    if "accelerator" in tfx_spec:
        limits[tfx_spec["accelerator"]["type"]] = str(tfx_spec["accelerator"].get("count", 1))
    return {**tfx_spec, **make_resource_spec(Machine(limits))}


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


def make_pod_settings(target: KubeflowSettings) -> PodSettings:
    """Returns the settings that all pods of a training share."""
    return PodSettings(
        image=target.image,
        claims={volume.mount_path: volume.claim for volume in target.volumes},
        secrets={variable: (secret.name, key) for secret in target.secrets for variable, key in sorted(secret.env.items())},
        variables={} if target.log_format == "text" else {process_log.FORMAT_VARIABLE: target.log_format},
        image_pull_secrets=target.image_pull_secrets,
        service_account=target.service_account,
        labels=target.labels,
        annotations=target.annotations,
        metrics_port=target.metrics_port,
        # Its user is that of the step that starts the training: both exchange files.
        run_as_non_root=target.security_context.run_as_non_root is not False,
        fs_group=target.security_context.fs_group,
    )


def _make_constant(value: str) -> Document:
    return {"runtimeValue": {"constant": value}}

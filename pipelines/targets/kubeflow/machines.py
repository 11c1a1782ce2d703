"""Converts machines of a pipeline file for Kubeflow Pipelines. Pure functions.

The pipeline's document has a step's resources, in two generations of fields. A second
document, the platform spec, says where the step runs; the backend reads it as
KubernetesExecutorConfig
(`kubernetes_platform/proto/kubernetes_executor_config.proto` of
github.com/kubeflow/pipelines). The pods of a training have a template; the launcher
completes it with what is known only in the Trainer's step. Imports neither TFX nor
TensorFlow.
"""

from collections.abc import Mapping
from typing import Any

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.kubernetes.job_kinds import CONTAINER, KubernetesSettings
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, keep_set, machine_of, number
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS
from tfx_distribute.trainer_module.liveness import preemption
from tfx_distribute.trainer_module.reporting import metrics_server, process_log

Document = dict[str, Any]

SHARED_MEMORY = "/dev/shm"  # noqa: S108
_GPU, _TPU, _SPOT = "nvidia.com/gpu", "google.com/tpu", "cloud.google.com/gke-spot"
# In namespaces of a multi-user installation, Istio's proxy next to each container would
# keep the pod running after training.
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
# With the pod's security context, it is what namespaces of the level `restricted` want.
NO_PRIVILEGES: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def make_limits(machine: MachineSpec) -> dict[str, str]:
    """Returns the limits of a container's resources."""
    limits: dict[str, str] = keep_set(cpu=machine.cpu, memory=machine.memory)
    if machine.accelerator:
        google = _TPU if accelerators.is_tpu(machine) else _GPU
        is_resource = machine.accelerator.startswith(accelerators.RESOURCE_PREFIX)
        limits[machine.accelerator if is_resource else google] = str(accelerators.count_devices(machine))
    return limits


def make_node_selector(machine: MachineSpec) -> dict[str, str]:
    """Returns the labels that a node must have: those of GKE, and the user's.

    Other clusters have none in common: a resource may be on any node that has it.
    """
    labels = {}
    if accelerators.is_tpu(machine):
        labels["cloud.google.com/gke-tpu-accelerator"] = machine.accelerator or ""
        labels["cloud.google.com/gke-tpu-topology"] = machine.topology
    elif machine.accelerator in accelerators.GPUS:
        labels["cloud.google.com/gke-accelerator"] = machine.accelerator
    if machine.spot:
        labels[_SPOT] = "true"
    return {**labels, **machine.node_selector}


def make_tolerations(machine: MachineSpec) -> list[dict[str, str]]:
    """Returns tolerations of the taints that reserve such nodes, and the user's."""
    tolerations = []
    if machine.accelerator:
        taint = _TPU if accelerators.is_tpu(machine) else _GPU
        tolerations.append({"key": taint, "operator": "Exists", "effect": "NoSchedule"})
    if machine.spot:
        tolerations.append({"key": _SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    return [*tolerations, *(keep_set(**each.model_dump()) for each in machine.tolerations)]


def make_shared_memory(machine: MachineSpec) -> Document | None:
    """Returns the volume of `/dev/shm`; None for the container's default."""
    if machine.shared_memory is None and not machine.accelerator:
        return None
    return keep_set(medium="Memory", sizeLimit=machine.shared_memory)


def make_grace(machine: MachineSpec) -> dict[str, str]:
    """Returns the variable with the time to end in; empty for the usual time."""
    is_spot = make_node_selector(machine).get(_SPOT) == "true"
    return {preemption.GRACE: str(timeouts.SPOT_GRACE_SECONDS)} if is_spot else {}


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
    for name, count in make_limits(machine).items():
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
    shared_memory = make_shared_memory(machine)
    if shared_memory:
        shared_memory = {"volumeName": "dshm", "mountPath": SHARED_MEMORY, **shared_memory}
    return keep_set(
        nodeSelector=keep_set(labels=make_node_selector(machine)),
        tolerations=make_tolerations(machine),
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


def launcher_settings(
    name: str, resources: Mapping[str, MachineSpec], settings: KubeflowSettings, trainer: str = TRAINER
) -> KubernetesSettings:
    """Returns the description of the pods that a Trainer may have to create.

    `name` is that of the pipeline; `trainer` is the key of the machine in `resources`.
    """
    return KubernetesSettings(
        name=name,
        worker=make_pod_template(machine_of(resources, trainer), settings),
        parameter_server=make_pod_template(machine_of(resources, PARAMETER_SERVER), settings),
        training=settings.training,
        training_dir=settings.training_dir,
        labels=settings.labels,
        queue=settings.queue,
        start_timeout_seconds=settings.start_timeout_seconds,
        active_deadline_seconds=settings.active_deadline_seconds,
    )


def make_pod_template(machine: MachineSpec, target: KubeflowSettings) -> Document:
    """Returns the pod template of a training process, without its command.

    The container has the name that the Training Operator requires.
    """
    volumes: list[Document] = []
    mounts: list[Document] = []
    for position, volume in enumerate(target.volumes):
        volumes.append({"name": f"volume-{position}", "persistentVolumeClaim": {"claimName": volume.claim}})
        mounts.append({"name": f"volume-{position}", "mountPath": volume.mount_path})
    if shared_memory := make_shared_memory(machine):
        volumes.append({"name": "dshm", "emptyDir": shared_memory})
        mounts.append({"name": "dshm", "mountPath": SHARED_MEMORY})
    values = make_grace(machine)
    if machine.accelerator and not accelerators.is_tpu(machine):
        values = {REQUESTED_GPUS: str(accelerators.count_devices(machine)), **values}
    if target.log_format != "text":
        values[process_log.FORMAT_VARIABLE] = target.log_format
    annotations, ports = dict(NO_SIDECAR), []
    if target.metrics_port:
        values |= {
            metrics_server.PORT_VARIABLE: str(target.metrics_port),
            metrics_server.ADDRESS_VARIABLE: metrics_server.EVERY_ADDRESS,  # Prometheus is in another pod
        }
        ports = [{"name": "metrics", "containerPort": target.metrics_port}]
        # Annotations that the charts of Prometheus look for. Source:
        # https://github.com/prometheus-community/helm-charts/blob/main/charts/prometheus/README.md
        annotations |= {"prometheus.io/scrape": "true", "prometheus.io/port": str(target.metrics_port)}
    secrets = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": key}}}
        for secret in target.secrets
        for variable, key in sorted(secret.env.items())
    ]
    container = keep_set(
        name=CONTAINER,
        image=target.image,
        securityContext=NO_PRIVILEGES,
        ports=ports,
        env=[*secrets, *({"name": variable, "value": value} for variable, value in values.items())],
        resources=keep_set(limits=make_limits(machine)),
        volumeMounts=mounts,
    )
    # Its user is that of the step that starts the training: both exchange files.
    context = target.security_context
    security: Document = {
        "runAsNonRoot": context.run_as_non_root is not False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if context.fs_group is not None:
        # Without the policy, each start of a pod would change the owner of each file.
        security |= {"fsGroup": context.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    spec = keep_set(
        containers=[container],
        securityContext=security,
        volumes=volumes,
        nodeSelector=make_node_selector(machine),
        tolerations=make_tolerations(machine),
        imagePullSecrets=[{"name": name} for name in target.image_pull_secrets],
        serviceAccountName=target.service_account,
    )
    return {"metadata": {"annotations": {**annotations, **target.annotations}, "labels": dict(target.labels)}, "spec": spec}

"""Makes the settings of Trainers: the pods of a training, and its checkpoint folder.

The launcher completes the pods with what is known only in the Trainer's step. Imports
neither TFX nor TensorFlow.
"""

from collections.abc import Mapping

from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER, KubernetesSettings
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.pipelines.targets.kubeflow import machines
from tfx_distribute.pipelines.targets.kubeflow.machines import SHARED_MEMORY, Document, keep_set
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS
from tfx_distribute.trainer_module.reporting import metrics_server, process_log

# In namespaces of a multi-user installation, Istio's proxy next to each container would
# keep the pod running after training.
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
# With the pod's security context, it is what namespaces of the level `restricted` want.
NO_PRIVILEGES: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def launcher(
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


def checkpoint_dir(name: str, settings: KubeflowSettings) -> str | None:
    """Returns the folder of a pipeline's checkpoints; None for the Trainer's default.

    It does not depend on the run, so that a later run finds the checkpoints: its steps
    have other addresses.
    """
    if settings.training_dir:
        return f"{settings.training_dir.rstrip('/')}/checkpoints"
    root = settings.pipeline_root.rstrip("/")
    return f"{root}/{name}/checkpoints" if root.startswith("gs://") else None


def make_pod_template(machine: MachineSpec, target: KubeflowSettings) -> Document:
    """Returns the pod template of a training process, without its command.

    The container has the name that the Training Operator requires.
    """
    volumes: list[Document] = []
    mounts: list[Document] = []
    for position, volume in enumerate(target.volumes):
        volumes.append({"name": f"volume-{position}", "persistentVolumeClaim": {"claimName": volume.claim}})
        mounts.append({"name": f"volume-{position}", "mountPath": volume.mount_path})
    if shared_memory := machines.make_shared_memory(machine):
        volumes.append({"name": "dshm", "emptyDir": shared_memory})
        mounts.append({"name": "dshm", "mountPath": SHARED_MEMORY})
    values = machines.make_grace(machine)
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
        resources=keep_set(limits=machines.make_limits(machine)),
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
        nodeSelector=machines.make_node_selector(machine),
        tolerations=machines.make_tolerations(machine),
        imagePullSecrets=[{"name": name} for name in target.image_pull_secrets],
        serviceAccountName=target.service_account,
    )
    return {"metadata": {"annotations": {**annotations, **target.annotations}, "labels": dict(target.labels)}, "spec": spec}

"""Makes the pods of a training. Pure functions.

The launcher completes the template with what is known only in the Trainer's step.
"""

from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.kubeflow import machines
from tfx_distribute.pipelines.targets.kubeflow.machines import SHARED_MEMORY, Document
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS
from tfx_distribute.trainer_module.reporting import metrics_server, process_log

# In namespaces of a multi-user installation, Istio's proxy next to each container would
# keep the pod running after training.
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
# With the pod's security context, it is what namespaces of the level `restricted` want.
NO_PRIVILEGES: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


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
        volumes.append({"name": SHARED_MEMORY, "emptyDir": shared_memory})
        mounts.append({"name": SHARED_MEMORY, "mountPath": "/dev/shm"})  # noqa: S108
    values: dict[str, str] = {}
    if machine.accelerator and not accelerators.is_tpu(machine):
        values[REQUESTED_GPUS] = str(accelerators.count_devices(machine))
    values |= machines.make_grace(machine)
    if target.log_format != "text":
        values[process_log.FORMAT_VARIABLE] = target.log_format
    annotations = dict(NO_SIDECAR)
    container: Document = {"name": CONTAINER, "image": target.image, "securityContext": NO_PRIVILEGES}
    if target.metrics_port:
        values |= {
            metrics_server.PORT_VARIABLE: str(target.metrics_port),
            metrics_server.ADDRESS_VARIABLE: metrics_server.EVERY_ADDRESS,  # Prometheus is in another pod
        }
        container["ports"] = [{"name": "metrics", "containerPort": target.metrics_port}]
        # Annotations that the charts of Prometheus look for. Source:
        # https://github.com/prometheus-community/helm-charts/blob/main/charts/prometheus/README.md
        annotations |= {"prometheus.io/scrape": "true", "prometheus.io/port": str(target.metrics_port)}
    environment: list[Document] = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": key}}}
        for secret in target.secrets
        for variable, key in sorted(secret.env.items())
    ]
    environment += [{"name": variable, "value": value} for variable, value in values.items()]
    if environment:
        container["env"] = environment
    if limits := machines.make_limits(machine):
        container["resources"] = {"limits": limits}
    if mounts:
        container["volumeMounts"] = mounts
    # Its user is that of the step that starts the training: both exchange files.
    context = target.security_context
    security: Document = {
        "runAsNonRoot": context.run_as_non_root is not False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if context.fs_group is not None:
        # Without the policy, each start of a pod would change the owner of each file.
        security |= {"fsGroup": context.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    spec: Document = {"containers": [container], "securityContext": security}
    if volumes:
        spec["volumes"] = volumes
    if node_selector := machines.make_node_selector(machine):
        spec["nodeSelector"] = node_selector
    if tolerations := machines.make_tolerations(machine):
        spec["tolerations"] = tolerations
    if target.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in target.image_pull_secrets]
    if target.service_account:
        spec["serviceAccountName"] = target.service_account
    return {"metadata": {"annotations": {**annotations, **target.annotations}, "labels": dict(target.labels)}, "spec": spec}

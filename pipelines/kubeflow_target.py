"""What a pipeline file says of Kubeflow, checked as a whole, and what follows. Imports neither TFX nor TensorFlow."""

from pathlib import Path

from tfx_distribute.components.launchers.tfjob import TFJobSettings
from tfx_distribute.pipelines import accelerators, pods
from tfx_distribute.pipelines.nodes import PARAMETER_SERVER, TRAINER, node
from tfx_distribute.pipelines.spec import PipelineSpec
from tfx_distribute.pipelines.targets import KubeflowTarget
from tfx_distribute.trainer_module import compatibility
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import Distribution

# What the launcher of a step mounts for itself: backend/src/v2/compiler/argocompiler/container.go of Kubeflow Pipelines.
OF_KUBEFLOW = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config")


def checked(spec: PipelineSpec) -> KubeflowTarget:
    """The target, which goes with the rest of the pipeline.

    Raises:
      ConfigurationError: It does not; the message says what to write instead.
    """
    target = spec.targets.kubeflow
    if target is None:
        raise ConfigurationError("targets.kubeflow: is missing; write at least its image and pipeline_root")
    _check_volumes(target)
    name, source = spec.data.source
    for setting, path in ((f"data.{name}", source), ("data.schema_file", spec.data.schema_file)):
        if setting != "data.example_gen":
            _check_reachable(setting, path, target)
    if spec.push:
        if spec.push.directory is None and not target.pipeline_root.startswith("gs://"):
            raise ConfigurationError(
                f"push.directory: is missing; a step cannot push to {target.pipeline_root}: write a gs:// address, or a "
                "folder below the mount_path of a volume"
            )
        _check_reachable("push.directory", spec.push.directory, target)
    shared = target.training_dir
    if shared is not None and not shared.startswith("gs://") and not _is_mounted(shared, target):
        raise ConfigurationError(
            f"targets.kubeflow.training_dir: {shared} is on no volume; write a folder below the mount_path of "
            f"one{_mounts(target)}"
        )
    if spec.beam.runner != "direct" and not target.pipeline_root.startswith("gs://"):
        raise ConfigurationError(
            f"beam.runner: the machines of {spec.beam.runner} reach nothing at {target.pipeline_root}; write runner: "
            "direct, or a gs:// pipeline_root"
        )
    distribution, _ = compatibility.resolve(spec.trainer.parameters.distribution)
    several = launcher(spec, target).wanted(distribution)
    if several and shared is None and not target.pipeline_root.startswith("gs://"):
        raise ConfigurationError(
            "targets.kubeflow.training_dir: is missing; the pods of a training cannot reach "
            f"{target.pipeline_root}: write a folder below the mount_path of a volume that all can write to, or a gs:// "
            "address"
        )
    _check_accelerator(spec, distribution, target)
    return target


def _check_accelerator(spec: PipelineSpec, distribution: Distribution, target: KubeflowTarget) -> None:
    worker = node(spec.nodes, TRAINER)
    machine = pods.machine(worker, target.platform)
    on_tpu = worker.accelerator is not None and accelerators.resource(worker.accelerator) == accelerators.TPU_RESOURCE
    if on_tpu != (distribution.strategy == "tpu"):
        raise ConfigurationError(
            f"nodes.Trainer.accelerator: strategy {distribution.strategy} does not train on {worker.accelerator or 'a CPU'}"
            "; write strategy: tpu with a TPU, and with nothing else"
        )
    if on_tpu and accelerators.hosts(str(worker.accelerator), worker.accelerator_count, worker.topology) > 1:
        raise ConfigurationError(
            f"nodes.Trainer.topology: {worker.topology} is several machines, and the strategy tpu trains on one here; write "
            "a smaller topology"
        )
    devices = [int(count) for name, count in machine.limits.items() if "/" in name]
    wanted = distribution.accelerator_count
    if distribution.accelerator_type == "gpu" and not devices:
        raise ConfigurationError(
            "nodes.Trainer.accelerator: is missing, and accelerator_type is gpu; write the kind of GPU, such as nvidia-l4"
        )
    if devices and wanted > devices[0]:
        raise ConfigurationError(
            f"accelerator_count: {wanted} devices per training process, but a machine has {devices[0]} "
            f"(nodes.Trainer); write accelerator_count: {devices[0]} or 0, or nodes.Trainer.accelerator_count: {wanted}"
        )


def _check_volumes(target: KubeflowTarget) -> None:
    for volume in target.volumes:
        if volume.mount_path.rstrip("/") in OF_KUBEFLOW:
            raise ConfigurationError(
                f"targets.kubeflow.volumes: {volume.mount_path} is a folder of Kubeflow's own in every step; write another "
                "mount_path"
            )
    for kind, given in (("claim", [volume.claim for volume in target.volumes]), ("mount_path", _paths(target))):
        for name in given:
            if given.count(name) > 1:
                raise ConfigurationError(f"targets.kubeflow.volumes: {kind} {name} is there more than once; write it once")


def _paths(target: KubeflowTarget) -> list[str]:
    return [volume.mount_path.rstrip("/") for volume in target.volumes]


def _check_reachable(setting: str, path: str | None, target: KubeflowTarget) -> None:
    # Artifacts are copied by Kubeflow; all else a step has to read by itself, which it can from there.
    if path is None or path.startswith("gs://") or _is_mounted(path, target):
        return
    raise ConfigurationError(
        f"{setting}: {path} cannot be reached by a step; for Kubeflow write an address such as gs://bucket/folder, or a "
        f"folder below the mount_path of a volume of targets.kubeflow{_mounts(target)}"
    )


def _is_mounted(path: str, target: KubeflowTarget) -> bool:
    return any(Path(path).is_relative_to(volume.mount_path) for volume in target.volumes)


def _mounts(target: KubeflowTarget) -> str:
    return f" ({', '.join(volume.mount_path for volume in target.volumes)})" if target.volumes else ""


def with_service_account(spec: PipelineSpec, name: str | None) -> PipelineSpec:
    """The same pipeline for another service account, which the pods of a training have too; None changes nothing."""
    if name is None:
        return spec
    target = checked(spec).model_copy(update={"service_account": name})
    return spec.model_copy(update={"targets": spec.targets.model_copy(update={"kubeflow": target})})


def launcher(spec: PipelineSpec, target: KubeflowTarget) -> TFJobSettings:
    """What the Trainer is told of the pods that it may have to create."""
    worker = pods.machine(node(spec.nodes, TRAINER), target.platform)
    server = pods.machine(node(spec.nodes, PARAMETER_SERVER), target.platform)
    gang = target.gang_scheduling
    named = {
        "minAvailable": gang and gang.min_available,
        "queue": gang and gang.queue,
        "priorityClass": gang and gang.priority_class,
        "scheduleTimeoutSeconds": gang and gang.schedule_timeout_seconds,
    }
    return TFJobSettings(
        name=spec.name,
        worker=pods.pod_template(worker, target),
        parameter_server=pods.pod_template(server, target),
        training=target.training,
        training_dir=target.training_dir,
        labels=target.labels,
        queue=target.queue,
        scheduling_policy=None if gang is None else {name: value for name, value in named.items() if value is not None},
        active_deadline_seconds=target.active_deadline_seconds,
    )


def checkpoint_dir(spec: PipelineSpec, target: KubeflowTarget) -> str | None:
    """Where states of trainings are, so that a later run finds them: its steps have other addresses."""
    if target.training_dir:
        return f"{target.training_dir.rstrip('/')}/checkpoints"
    root = target.pipeline_root.rstrip("/")
    return f"{root}/{spec.name}/checkpoints" if root.startswith("gs://") else None

"""What a pipeline file says of Kubeflow, checked as a whole, and what follows. Imports neither TFX nor TensorFlow."""

from collections.abc import Mapping
from pathlib import Path

from tfx_distribute.components.launchers import settings
from tfx_distribute.components.launchers.tfjob.manifest import TFJobSettings
from tfx_distribute.pipelines.machines import trainer_checks
from tfx_distribute.pipelines.runners.kubeflow import pods
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.spec.targets import KubeflowTarget
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table

# What the launcher of a step mounts for itself: backend/src/v2/compiler/argocompiler/container.go of Kubeflow Pipelines.
OF_KUBEFLOW = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config")


def validate_target(spec: PipelineSpec) -> KubeflowTarget:
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
    distribution, _ = strategy_table.resolve(spec.trainer.parameters.distribution)
    strategy_table.check_all_reduce(distribution, "Kubeflow")
    several = settings.runs_remotely(launcher(spec.name, spec.resources, target), distribution)
    if several and shared is None and not target.pipeline_root.startswith("gs://"):
        raise ConfigurationError(
            "targets.kubeflow.training_dir: is missing; the pods of a training cannot reach "
            f"{target.pipeline_root}: write a folder below the mount_path of a volume that all can write to, or a gs:// "
            "address"
        )
    trainer_checks.check(machine_of(spec.resources, TRAINER), distribution, target.platform)
    return target


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


def launcher(name: str, resources: Mapping[str, MachineSpec], target: KubeflowTarget) -> TFJobSettings:
    """What the Trainer is told of the pods that it may have to create.

    Args:
      name: Name of the pipeline.
      resources: Its machines.
      target: Where it runs.
    """
    worker = pods.make_machine(machine_of(resources, TRAINER), target.platform)
    server = pods.make_machine(machine_of(resources, PARAMETER_SERVER), target.platform)
    gang = target.gang_scheduling
    named = {
        "minAvailable": gang and gang.min_available,
        "queue": gang and gang.queue,
        "priorityClass": gang and gang.priority_class,
        "scheduleTimeoutSeconds": gang and gang.schedule_timeout_seconds,
    }
    return TFJobSettings(
        name=name,
        worker=pods.make_pod_template(worker, target),
        parameter_server=pods.make_pod_template(server, target),
        training=target.training,
        training_dir=target.training_dir,
        labels=target.labels,
        queue=target.queue,
        scheduling_policy=None if gang is None else {name: value for name, value in named.items() if value is not None},
        active_deadline_seconds=target.active_deadline_seconds,
    )


def checkpoint_dir(name: str, target: KubeflowTarget) -> str | None:
    """Where states of a pipeline's trainings are, so that a later run finds them: its steps have other addresses."""
    if target.training_dir:
        return f"{target.training_dir.rstrip('/')}/checkpoints"
    root = target.pipeline_root.rstrip("/")
    return f"{root}/{name}/checkpoints" if root.startswith("gs://") else None

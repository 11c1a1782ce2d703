"""Checks that a pipeline can run on Kubeflow. Imports neither TFX nor TensorFlow."""

from pathlib import Path

from tfx_distribute.pipelines.machines import machine_checks
from tfx_distribute.pipelines.spec.machines import TRAINER, machine_of
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, PipelineSpec
from tfx_distribute.pipelines.targets.kubeflow import trainer_settings
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table

# Schemes of addresses that Kubeflow's importer takes and TensorFlow can read (it cannot
# read a model in an image, oci://).
IMPORTED_SCHEMES = ("gs://", "s3://", "minio://")


def validate(spec: PipelineSpec) -> KubeflowSettings:
    """Checks that a pipeline can run on Kubeflow, and returns its settings for it."""
    settings = spec.targets.kubeflow
    if settings is None:
        raise ConfigurationError("targets.kubeflow: is missing; write at least its image and pipeline_root")
    name, source = spec.data.source
    for setting, path in ((f"data.{name}", source), ("data.schema_file", spec.data.schema_file)):
        if setting != "data.example_gen":
            _check_reachable(setting, path, settings)
    base_model = spec.trainer.base_model.path
    if base_model not in ("", LATEST_BLESSED) and not base_model.startswith(IMPORTED_SCHEMES):
        raise ConfigurationError(
            f"trainer.base_model: Kubeflow Pipelines cannot import {base_model}; write an address such as "
            "gs://bucket/folder, or latest_blessed"
        )
    if spec.push:
        if spec.push.directory is None and not settings.pipeline_root.startswith("gs://"):
            raise ConfigurationError(
                f"push.directory: is missing; a step cannot push to {settings.pipeline_root}: write a gs:// address, or a "
                "folder below the mount_path of a volume"
            )
        _check_reachable("push.directory", spec.push.directory, settings)
    training_dir = settings.training_dir
    if training_dir is not None and not training_dir.startswith("gs://") and not _is_mounted(training_dir, settings):
        raise ConfigurationError(
            f"targets.kubeflow.training_dir: {training_dir} is not on a volume; write a folder below the mount_path of "
            f"one{_mounts(settings)}"
        )
    if spec.beam.runner != "direct" and not settings.pipeline_root.startswith("gs://"):
        raise ConfigurationError(
            f"beam.runner: the machines of {spec.beam.runner} reach nothing at {settings.pipeline_root}; write runner: "
            "direct, or a gs:// pipeline_root"
        )
    machine_checks.check_all(spec.resources, settings.platform)
    distribution = spec.trainer.parameters.distribution
    machine_checks.check_trainer(machine_of(spec.resources, TRAINER), distribution)
    strategy_table.check_all_reduce(distribution, "Kubeflow")
    launcher = trainer_settings.launcher(spec.name, spec.resources, settings)
    if launcher.runs_remotely(distribution) and training_dir is None and not settings.pipeline_root.startswith("gs://"):
        raise ConfigurationError(
            "targets.kubeflow.training_dir: is missing; the pods of a training cannot reach "
            f"{settings.pipeline_root}: write a folder below the mount_path of a volume that all can write to, or a gs:// "
            "address"
        )
    return settings


def find_warnings(spec: PipelineSpec, settings: KubeflowSettings) -> list[str]:
    """Returns which devices are idle, and that notifications are not sent."""
    worker = machine_of(spec.resources, TRAINER)
    warnings = machine_checks.warn_of_idle_devices(worker, spec.trainer.parameters.distribution)
    variables = {variable for secret in settings.secrets for variable in secret.env}
    if spec.notify and spec.notify.urls not in variables:
        warnings.append(
            f"notify.urls: no secret sets {spec.notify.urls} in the steps, so no notification is sent; write "
            f"targets.kubeflow.secrets: [{{name: SECRET, env: {{{spec.notify.urls}: KEY}}}}]"
        )
    return warnings


def _check_reachable(setting: str, path: str | None, settings: KubeflowSettings) -> None:
    # Kubeflow copies artifacts. A step must read everything else by itself, which it
    # can only from these places.
    if path is None or path.startswith("gs://") or _is_mounted(path, settings):
        return
    raise ConfigurationError(
        f"{setting}: {path} cannot be reached by a step; for Kubeflow write an address such as gs://bucket/folder, or a "
        f"folder below the mount_path of a volume of targets.kubeflow{_mounts(settings)}"
    )


def _is_mounted(path: str, settings: KubeflowSettings) -> bool:
    return any(Path(path).is_relative_to(volume.mount_path) for volume in settings.volumes)


def _mounts(settings: KubeflowSettings) -> str:
    return f" ({', '.join(volume.mount_path for volume in settings.volumes)})" if settings.volumes else ""

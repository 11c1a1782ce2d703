"""Checks that a pipeline can run on Kubeflow. Imports neither TFX nor TensorFlow."""

from pathlib import Path

from tfx_distribute.components.launchers import accelerators
from tfx_distribute.pipelines.machines import machine_checks
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, machine_of
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, PipelineSpec
from tfx_distribute.pipelines.targets.kubeflow import pods, trainer_settings
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table

# Folders that the launcher of a step mounts for itself. Source:
# backend/src/v2/compiler/argocompiler/container.go of Kubeflow Pipelines.
RESERVED_FOLDERS = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config")

# Folder of the Dockerfile's image -> what it has there. Another image may have it
# elsewhere.
IMAGE_FOLDERS = {"/opt/venv": "this package", "/pipeline": "the pipeline's module"}

# Schemes of addresses that Kubeflow's importer takes and TensorFlow can read (it cannot
# read a model in an image, oci://).
IMPORTED_SCHEMES = ("gs://", "s3://", "minio://")

# What a namespace may write in the bucket of an installation for several users. Source:
# manifests/kustomize/base/installs/multi-user/pipelines-profile-controller/sync.py,
# since 2.15. `artifacts` and `shared` are everybody's.
NAMESPACE_PREFIXES = ("private-artifacts/{}/", "private/{}/", "artifacts/", "shared/")


def validate(spec: PipelineSpec) -> KubeflowSettings:
    """Checks that a pipeline can run on Kubeflow.

    Returns:
      The settings of Kubeflow in the pipeline file.

    Raises:
      ConfigurationError: It cannot run there; the message says what to write instead.
    """
    settings = spec.targets.find(KubeflowSettings)
    if settings is None:
        raise ConfigurationError("targets.kubeflow: is missing; write at least its image and pipeline_root")
    _check_volumes(settings)
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
    if settings.gang_scheduling and settings.training == "jobset":
        raise ConfigurationError(
            "targets.kubeflow.gang_scheduling: is the Training Operator's, and has no effect with training: jobset; write "
            "the queue of Kueue, which admits all pods or none, or training: tfjob"
        )
    machine_checks.check_waiting_step(spec.resources, settings.training)
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
    """Returns what an installation of Kubeflow may refuse or ignore, and what is idle.

    Args:
      spec: The pipeline.
      settings: Its settings of Kubeflow.
    """
    distribution = spec.trainer.parameters.distribution
    warnings = machine_checks.warn_of_idle_devices(machine_of(spec.resources, TRAINER), distribution)
    bucket, _, folder = settings.pipeline_root.removeprefix("minio://").partition("/")
    if settings.namespace and settings.pipeline_root.startswith("minio://"):
        prefixes = [prefix.format(settings.namespace) for prefix in NAMESPACE_PREFIXES]
        if not f"{folder}/".startswith(tuple(prefixes)):
            warnings.append(
                f"targets.kubeflow.pipeline_root: {settings.pipeline_root} is refused by Kubeflow Pipelines 2.15 and later "
                f"with several users, where namespace {settings.namespace} may only write to "
                f"{', '.join(prefixes[:-1])} and {prefixes[-1]} of its bucket; write e.g. "
                f"minio://{bucket}/{prefixes[0]}v2"
            )
    for volume in settings.volumes:
        for folder, content in IMAGE_FOLDERS.items():
            if Path(folder).is_relative_to(volume.mount_path):
                warnings.append(
                    f"targets.kubeflow.volumes: {volume.mount_path} hides {folder}, where the Dockerfile's image has "
                    f"{content}; write another mount_path, unless your image has it elsewhere"
                )
    variables = {variable for secret in settings.secrets for variable in secret.env}
    if spec.notify and spec.notify.urls not in variables:
        warnings.append(
            f"notify.urls: no secret sets {spec.notify.urls} in the steps, so no notification is sent; write "
            f"targets.kubeflow.secrets: [{{name: SECRET, env: {{{spec.notify.urls}: KEY}}}}]"
        )
    launcher = trainer_settings.launcher(spec.name, spec.resources, settings)
    trains_remotely = launcher.runs_remotely(distribution)
    for name, machine in spec.resources.items():
        affinity = pods.make_machine(machine, settings.platform).node_affinity
        if affinity and name != PARAMETER_SERVER and not (name == TRAINER and trains_remotely):
            products = affinity[accelerators.PRODUCT]
            warnings.append(
                f"resources.{name}.accelerator: {machine.accelerator} is several products, and Kubeflow Pipelines before "
                "2.14 runs a step on any of the cluster's GPUs then; where it is older, write the product that you have, "
                f"such as node_selector: {{{accelerators.PRODUCT}: {products[0]}}}"
            )
    if settings.gang_scheduling and trains_remotely:
        warnings.append(
            "targets.kubeflow.gang_scheduling: has an effect only if the Training Operator runs with --gang-scheduler-name="
            "volcano or scheduler-plugins, which cannot be seen from here; otherwise each pod starts when it fits"
        )
    return warnings


def _check_volumes(settings: KubeflowSettings) -> None:
    for volume in settings.volumes:
        if volume.mount_path.rstrip("/") in RESERVED_FOLDERS:
            raise ConfigurationError(
                f"targets.kubeflow.volumes: {volume.mount_path} is a folder of Kubeflow's own in every step; write another "
                "mount_path"
            )
    claims = [volume.claim for volume in settings.volumes]
    paths = [volume.mount_path.rstrip("/") for volume in settings.volumes]
    for kind, values in (("claim", claims), ("mount_path", paths)):
        for value in values:
            if values.count(value) > 1:
                raise ConfigurationError(f"targets.kubeflow.volumes: {kind} {value} is there more than once; write it once")


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

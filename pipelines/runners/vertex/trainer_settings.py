"""Computes the settings of Trainers on Vertex AI: launcher and checkpoint folder.

Imports neither TFX nor TensorFlow.
"""

from collections.abc import Mapping

from tfx_distribute.components.launchers.custom_job.spec import CustomJobSettings
from tfx_distribute.pipelines.machines import machine_checks, machine_types
from tfx_distribute.pipelines.runners.vertex import machines as vertex_machines
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.lifecycle import process_log

_DISK = ("boot_disk_type", "boot_disk_size_gb")
# The service's, for all but some machines. Source:
# https://cloud.google.com/vertex-ai/docs/training/configure-compute#boot_disk_options
_DEFAULT_DISK = "pd-ssd"
_CUSTOM_JOB_SETTINGS = ("reservation", "tensorboard", "timeout", "scheduling_strategy", "max_wait_duration", *_DISK)


def unsupported_in_step(worker: MachineSpec, settings: VertexSettings | None = None) -> str:
    """Returns the property of a machine that a step cannot have; "" if there is none.

    Args:
      worker: The machine.
      settings: Settings of all training machines, if it is one of them.
    """
    if machine_checks.is_tpu(worker):
        return f"TPU ({worker.accelerator})"
    if worker.machine_type:
        return f"machine type ({worker.machine_type})"
    if worker.spot:
        return "spot machine"
    for setting in _DISK:
        if getattr(worker, setting) is not None:
            return setting
    for setting in _CUSTOM_JOB_SETTINGS if settings else ():
        if getattr(settings, setting) is not None:
            return setting
    return ""


def launcher(
    name: str, resources: Mapping[str, MachineSpec], settings: VertexSettings, trainer: str = TRAINER
) -> CustomJobSettings:
    """Returns the description of the worker pools that a Trainer may have to create.

    Args:
      name: Name of the pipeline.
      resources: Component or training role -> machine.
      settings: Settings of Vertex AI.
      trainer: Key of `resources` that has the Trainer's machine.

    Raises:
      ConfigurationError: Vertex AI has no such machine.
    """
    worker = machine_of(resources, trainer)
    parameter_server = machine_of(resources, PARAMETER_SERVER)
    worker_spec = vertex_machines.make_machine_spec(worker, settings.reservation)
    parameter_server_spec = vertex_machines.make_machine_spec(parameter_server)
    training = settings.training
    if training == "auto" and (
        unsupported_in_step(worker, settings) or vertex_machines.describe_excess(vertex_machines.make_resource_spec(worker))
    ):
        training = "custom_job"
    psc_interface = settings.psc_interface_config
    return CustomJobSettings(
        name=name,
        project=settings.project or "",
        location=settings.region or "",
        image=settings.image,
        worker=worker_spec,
        parameter_server=parameter_server_spec,
        reduction_server={"machine_type": settings.reduction_server_machine_type},
        reduction_server_replica_count=settings.reduction_server_replica_count,
        training=training,
        disk_spec=_disk(trainer, worker, worker_spec["machine_type"], settings),
        parameter_server_disk_spec=_disk(
            PARAMETER_SERVER, parameter_server, parameter_server_spec["machine_type"], settings
        ),
        scheduling=_scheduling(worker, settings),
        service_account=settings.service_account,
        network=settings.network,
        psc_interface_config=psc_interface.model_dump(exclude_defaults=True) if psc_interface else {},
        tensorboard=settings.tensorboard,
        encryption_spec={"kms_key_name": settings.encryption_spec_key_name} if settings.encryption_spec_key_name else {},
        labels=settings.labels,
        environment={} if settings.log_format == "text" else {process_log.FORMAT_VARIABLE: settings.log_format},
    )


def _disk(role: str, machine: MachineSpec, machine_type: str, settings: VertexSettings) -> dict[str, str | int]:
    """Returns the DiskSpec of a pool: its machine's own settings, or those of all.

    It names the type where a machine does not start from the usual one.

    Raises:
      ConfigurationError: The machine type cannot start from such a disk.
    """
    spec: dict[str, str | int] = {}
    for name in _DISK:
        own = getattr(machine, name)
        value = own if own is not None else getattr(settings, name)
        if value is not None:
            spec[name] = value
    offered = machine_types.find(machine_type).boot_disk_types
    disk_type = spec.get("boot_disk_type")
    if disk_type is None and _DEFAULT_DISK not in offered:
        return {"boot_disk_type": offered[0], **spec}
    if disk_type is not None and disk_type not in offered:
        setting = f"resources.{role}.boot_disk_type" if machine.boot_disk_type else "targets.vertex.boot_disk_type"
        raise ConfigurationError(
            f"{setting}: {machine_type} does not start from {disk_type}; write resources.{role}.boot_disk_type: "
            f"{' or '.join(offered)}"
        )
    return spec


def _scheduling(worker: MachineSpec, settings: VertexSettings) -> dict[str, str | bool]:
    strategy = "SPOT" if worker.spot else settings.scheduling_strategy
    scheduling: dict[str, str | bool] = {"strategy": strategy} if strategy else {}
    if settings.max_wait_duration is not None:
        scheduling["max_wait_duration"] = f"{settings.max_wait_duration}s"
    if settings.timeout:
        scheduling["timeout"] = f"{settings.timeout}s"
    if settings.restart_job_on_worker_restart:
        scheduling["restart_job_on_worker_restart"] = True
    return scheduling


def checkpoint_dir(name: str, settings: VertexSettings) -> str:
    """Returns the folder of a pipeline's checkpoints.

    It does not depend on the run, so that a later run finds the checkpoints: its steps
    have other addresses.

    Args:
      name: Name of the pipeline.
      settings: Settings of Vertex AI.
    """
    return f"{settings.pipeline_root.rstrip('/')}/{name}/checkpoints"

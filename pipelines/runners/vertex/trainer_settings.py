"""Computes the settings of Trainers on Vertex AI: launcher and checkpoint folder.

Imports neither TFX nor TensorFlow.
"""

from collections.abc import Mapping

from tfx_distribute.components.launchers.custom_job.spec import CustomJobSettings
from tfx_distribute.pipelines.machines import machine_checks
from tfx_distribute.pipelines.runners.vertex import machines as vertex_machines
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.trainer_module.lifecycle import process_log

_DISK = ("boot_disk_type", "boot_disk_size_gb")
_CUSTOM_JOB_SETTINGS = ("reservation", "tensorboard", "timeout", *_DISK)


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
    for setting in _CUSTOM_JOB_SETTINGS if settings else ():
        if getattr(settings, setting):
            return setting
    return ""


def launcher(name: str, resources: Mapping[str, MachineSpec], settings: VertexSettings) -> CustomJobSettings:
    """Returns the description of the worker pools that the Trainer may have to create.

    Args:
      name: Name of the pipeline.
      resources: Component or training role -> machine.
      settings: Settings of Vertex AI.

    Raises:
      ConfigurationError: Vertex AI has no such machine.
    """
    worker = machine_of(resources, TRAINER)
    training = settings.training
    if training == "auto" and unsupported_in_step(worker, settings):
        training = "custom_job"
    return CustomJobSettings(
        name=name,
        project=settings.project or "",
        location=settings.region or "",
        image=settings.image,
        worker=vertex_machines.make_machine_spec(worker, settings.reservation),
        parameter_server=vertex_machines.make_machine_spec(machine_of(resources, PARAMETER_SERVER)),
        reduction_server={"machine_type": settings.reduction_server_machine_type},
        reduction_server_replica_count=settings.reduction_server_replica_count,
        training=training,
        disk_spec={name: value for name in _DISK if (value := getattr(settings, name)) is not None},
        scheduling=_scheduling(worker, settings),
        service_account=settings.service_account,
        network=settings.network,
        tensorboard=settings.tensorboard,
        encryption_spec={"kms_key_name": settings.encryption_spec_key_name} if settings.encryption_spec_key_name else {},
        labels=settings.labels,
        environment={} if settings.log_format == "text" else {process_log.FORMAT_VARIABLE: settings.log_format},
    )


def _scheduling(worker: MachineSpec, settings: VertexSettings) -> dict[str, str | bool]:
    scheduling: dict[str, str | bool] = {"strategy": "SPOT"} if worker.spot else {}
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

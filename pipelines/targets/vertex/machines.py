"""Converts machines of a pipeline file for Vertex AI. Imports no TFX and TensorFlow.

A step requests CPU, memory and accelerators, and Vertex AI chooses a machine type; a
worker pool names its machine type.
"""

from collections.abc import Mapping
from typing import Any

from tfx_distribute.components.launchers import accelerators
from tfx_distribute.components.launchers.vertex.launcher import VertexTrainingSettings
from tfx_distribute.pipelines.machines import machine_checks, machine_types
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of, number
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.reporting import process_log

DEFAULT_MACHINE = "n1-standard-4"  # as in the SDK
# With a GPU its log may stop, for lack of CPUs: it is taken if it is named. Source:
# https://cloud.google.com/vertex-ai/docs/training/configure-compute#gpus
_SLOW_WITH_GPUS = "n1-highmem-2"
# The service's, which some machines do not start from. Source:
# https://cloud.google.com/vertex-ai/docs/training/configure-compute#boot_disk_options
_DEFAULT_DISK = "pd-ssd"
_POOLS_ONLY = (
    "reservation",
    "tensorboard",
    "timeout",
    "scheduling_strategy",
    "max_wait_duration",
    "boot_disk_type",
    "boot_disk_size_gb",
)


def launcher_settings(
    name: str, resources: Mapping[str, MachineSpec], settings: VertexSettings, trainer: str = TRAINER
) -> VertexTrainingSettings:
    """Returns the worker pools that a Trainer may have to create.

    `name` is that of the pipeline; `trainer` is the key of the machine in `resources`.
    """
    worker, parameter_server = machine_of(resources, trainer), machine_of(resources, PARAMETER_SERVER)
    worker_spec = make_machine_spec(worker, settings.reservation)
    parameter_server_spec = make_machine_spec(parameter_server)
    needs_pools = settings.training == "auto" and unsupported_in_step(worker, settings)
    key = settings.encryption_spec_key_name
    return VertexTrainingSettings(
        name=name,
        project=settings.project or "",
        location=settings.region or "",
        image=settings.image,
        worker=worker_spec,
        parameter_server=parameter_server_spec,
        reduction_server={"machine_type": settings.reduction_server_machine_type},
        reduction_server_replica_count=settings.reduction_server_replica_count,
        training="custom_job" if needs_pools else settings.training,
        disk_spec=_make_disk_spec(worker_spec, settings),
        parameter_server_disk_spec=_make_disk_spec(parameter_server_spec, settings),
        scheduling=_make_scheduling(worker, settings),
        service_account=settings.service_account,
        network=settings.network,
        psc_interface_config=settings.psc_interface_config,
        tensorboard=settings.tensorboard,
        encryption_spec={"kms_key_name": key} if key else {},
        labels=settings.labels,
        environment={} if settings.log_format == "text" else {process_log.FORMAT_VARIABLE: settings.log_format},
    )


def checkpoint_dir(name: str, settings: VertexSettings) -> str:
    """Returns the folder of a pipeline's checkpoints, the same for each run."""
    return f"{settings.pipeline_root.rstrip('/')}/{name}/checkpoints"


def unsupported_in_step(machine: MachineSpec, settings: VertexSettings | None = None) -> str:
    """Returns what a step cannot have; "" if it can have all.

    `settings` are those of all training machines, if the machine is one of them.
    """
    if machine_checks.is_tpu(machine):
        return f"TPU ({machine.accelerator})"
    lacks = [name for name in ("machine_type", "spot") if getattr(machine, name)]
    lacks += [name for name in _POOLS_ONLY if settings and getattr(settings, name) is not None]
    return next(iter(lacks), "")


def make_machine_spec(machine: MachineSpec, reservation: str | None = None) -> dict[str, Any]:
    """Returns Vertex AI's MachineSpec of a worker pool."""
    accelerators.check(machine.accelerator, machine.accelerator_count, machine.topology, "vertex", machine.spot)
    spec: dict[str, Any] = {"machine_type": find_machine_type(machine)}
    if machine.accelerator:
        device = (machine.accelerator, machine.accelerator_count, machine.topology)
        spec |= accelerators.make_machine_spec(*device, spec["machine_type"])
    if reservation is not None:
        spec["reservation_affinity"] = {
            "reservation_affinity_type": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [reservation],
        }
    return spec


def make_resource_spec(machine: MachineSpec) -> dict[str, Any]:
    """Returns the resources of a step, with the memory that Vertex AI's agents use."""
    spec: dict[str, Any] = {}
    if machine.cpu:
        spec["cpuLimit"] = float(number(machine.cpu))
    if machine.memory:
        spec["memoryLimit"] = round(machine_types.add_agents(_gibibytes(machine)) * 2**30 / 1e9, 2)
    if machine.accelerator:
        devices = accelerators.count_devices(machine.accelerator, machine.accelerator_count)
        spec["accelerator"] = {"type": accelerators.ACCELERATORS[machine.accelerator].vertex_type, "count": str(devices)}
    return spec


def find_machine_type(machine: MachineSpec) -> str:
    """Returns the given machine type, or the smallest with its CPUs and memory."""
    if machine.machine_type:
        return machine.machine_type
    names = machine_types.N2
    if machine.accelerator:
        able = accelerators.find_machine_types(machine.accelerator, machine.accelerator_count, machine.topology)
        names = tuple(name for name in able if name != _SLOW_WITH_GPUS)
    if not (machine.cpu or machine.memory):
        return names[0] if machine.accelerator else DEFAULT_MACHINE
    smallest = machine_types.find_smallest(names, float(number(machine.cpu or "0")), _gibibytes(machine))
    if smallest is None:
        raise ConfigurationError(
            f"machine_type: none of {', '.join(names)} has {machine.cpu or 'any'} CPUs and {machine.memory or 'any'} of "
            "memory, besides that of Vertex AI's agents; write which machine_type"
        )
    return smallest.name


def _make_disk_spec(spec: Mapping[str, Any], settings: VertexSettings) -> dict[str, str | int]:
    """Returns the disk of a pool; names its type if the usual one does not suit."""
    values: dict[str, Any] = {
        "boot_disk_type": settings.boot_disk_type,
        "boot_disk_size_gb": settings.boot_disk_size_gb,
    }
    row = machine_types.MACHINE_TYPES.get(spec["machine_type"])
    if row and _DEFAULT_DISK not in row.boot_disk_types:
        values["boot_disk_type"] = values["boot_disk_type"] or row.boot_disk_types[0]
    return {name: value for name, value in values.items() if value is not None}


def _make_scheduling(worker: MachineSpec, settings: VertexSettings) -> dict[str, str | bool]:
    values = {
        "strategy": "SPOT" if worker.spot else settings.scheduling_strategy,
        "max_wait_duration": None if settings.max_wait_duration is None else f"{settings.max_wait_duration}s",
        "timeout": f"{settings.timeout}s" if settings.timeout else None,
        "restart_job_on_worker_restart": settings.restart_job_on_worker_restart or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _gibibytes(machine: MachineSpec) -> float:
    return float(number(machine.memory or "0") / 2**30)

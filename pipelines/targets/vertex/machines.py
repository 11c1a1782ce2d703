"""Converts machines of a pipeline file for Vertex AI. Imports no TFX and TensorFlow.

A step requests CPU, memory and accelerators, and Vertex AI chooses a machine type; a
worker pool names its machine type.
"""

from collections.abc import Mapping
from typing import Any, Literal

from tfx_distribute.components.launchers.vertex.launcher import VertexTrainingSettings
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, keep_set, machine_of, number
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.reporting import process_log

# CPUs of the machines n2-standard-... and n2-highmem-...
_N2_SIZES = (4, 8, 16, 32, 48, 64, 80)
# The service's own processes use up to 40 % of the memory of small machines. The
# documentation has no number for larger ones; we leave them what they may use of 16
# GiB, the memory of the service's usual machines.
_AGENTS_SHARE = 0.4
_MAX_AGENTS_GIB = 16 * _AGENTS_SHARE
# It has a command of its own. Source:
# https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduction_server
_REDUCTION_SERVER_IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"


def launcher_settings(
    name: str, resources: Mapping[str, MachineSpec], settings: VertexSettings, trainer: str = TRAINER
) -> VertexTrainingSettings:
    """Returns the worker pools that a Trainer may have to create.

    `name` is that of the pipeline; `trainer` is the key of the machine in `resources`.
    """
    worker, parameter_server = machine_of(resources, trainer), machine_of(resources, PARAMETER_SERVER)
    training: Literal["auto", "step", "elsewhere"]
    training = "elsewhere" if settings.training == "custom_job" else settings.training
    if training == "auto" and unsupported_in_step(worker, settings):
        training = "elsewhere"
    container = {**settings.worker_pool.get("container_spec", {}), "image_uri": settings.image}
    if settings.log_format != "text":
        log_format = {"name": process_log.FORMAT_VARIABLE, "value": settings.log_format}
        container["env"] = [*container.get("env", []), log_format]
    pool = {**settings.worker_pool, "container_spec": container}
    own_machine = settings.worker_pool.get("machine_spec", {})
    job_spec = keep_set(
        scheduling={**({"strategy": "SPOT"} if worker.spot else {}), **settings.custom_job.get("scheduling", {})},
        service_account=settings.service_account,
        network=settings.network,
        psc_interface_config=settings.psc_interface_config,
    )
    encryption = keep_set(kms_key_name=settings.encryption_spec_key_name)
    return VertexTrainingSettings(
        name=name,
        project=settings.project or "",
        location=settings.region or "",
        worker={**pool, "machine_spec": {**make_machine_spec(worker), **own_machine}},
        parameter_server={**pool, "machine_spec": make_machine_spec(parameter_server)},
        reduction_server={
            "machine_spec": {"machine_type": "n1-highcpu-16"},
            "replica_count": 1,
            **settings.reduction_server,
            "container_spec": {"image_uri": _REDUCTION_SERVER_IMAGE},
        },
        job=keep_set(job_spec={**settings.custom_job, **job_spec}, labels=settings.labels, encryption_spec=encryption),
        training=training,
    )


def unsupported_in_step(machine: MachineSpec, settings: VertexSettings | None = None) -> str:
    """Returns what a step cannot have; "" if it can have all.

    `settings` are those of all training machines, if the machine is one of them.
    """
    if accelerators.is_tpu(machine):
        return f"TPU ({machine.accelerator})"
    lacks = [name for name in ("machine_type", "spot") if getattr(machine, name)]
    lacks += [name for name in ("custom_job", "worker_pool") if settings and getattr(settings, name)]
    return next(iter(lacks), "")


def check_step(name: str, machine: MachineSpec) -> None:
    """Checks that a step can have a machine; only training can have any."""
    if reason := unsupported_in_step(machine):
        raise ConfigurationError(
            f"resources.{name}: a step has no {reason}; only training has: write it under resources.{TRAINER} or "
            f"resources.{PARAMETER_SERVER}"
        )


def make_machine_spec(machine: MachineSpec) -> dict[str, Any]:
    """Returns Vertex AI's MachineSpec of a worker pool."""
    name, count = machine.accelerator or "", accelerators.count_devices(machine)
    devices: dict[str, Any]
    if accelerators.is_tpu(machine):
        machine_type, devices = accelerators.TPUS[name][machine.topology], {"tpu_topology": machine.topology}
    elif name:
        machine_type = accelerators.GPUS[name][count]
        devices = {"accelerator_type": accelerator_type(name), "accelerator_count": count}
    else:
        machine_type, devices = machine.machine_type or _find_machine_type(machine), {}
    return {"machine_type": machine.machine_type or machine_type, **devices}


def make_resource_spec(machine: MachineSpec) -> dict[str, Any]:
    """Returns the resources of a step, with the memory that Vertex AI's agents use."""
    spec: dict[str, Any] = {}
    if machine.cpu:
        spec["cpuLimit"] = float(number(machine.cpu))
    if machine.memory:
        spec["memoryLimit"] = round(_gibibytes_with_agents(machine) * 2**30 / 1e9, 2)
    if machine.accelerator:
        devices = accelerators.count_devices(machine)
        spec["accelerator"] = {"type": accelerator_type(machine.accelerator), "count": str(devices)}
    return spec


def accelerator_type(gpu: str) -> str:
    """Returns Vertex AI's name of a GPU."""
    return gpu.upper().replace("-", "_")


def _find_machine_type(machine: MachineSpec) -> str:
    """Returns the smallest N2 machine with the CPUs and memory."""
    if not (machine.cpu or machine.memory):
        return "n1-standard-4"  # as in the SDK
    cpus, gibibytes = float(number(machine.cpu or "0")), _gibibytes_with_agents(machine)
    for size in _N2_SIZES:
        for series, gibibytes_per_cpu in (("standard", 4), ("highmem", 8)):
            if size >= cpus and size * gibibytes_per_cpu >= gibibytes:
                return f"n2-{series}-{size}"
    raise ConfigurationError(
        f"machine_type: no N2 machine has {machine.cpu or 'any'} CPUs and {machine.memory or 'any'} of memory, besides that "
        "of Vertex AI's agents; write which machine_type"
    )


def _gibibytes_with_agents(machine: MachineSpec) -> float:
    """Returns the memory of a machine that leaves the requested memory, in GiB."""
    requested = float(number(machine.memory or "0") / 2**30)
    return min(requested / (1 - _AGENTS_SHARE), requested + _MAX_AGENTS_GIB)

"""Checks that a pipeline can run on Vertex AI. Imports neither TFX nor TensorFlow."""

from collections.abc import Mapping
from typing import Any

from tfx_distribute.components.launchers.custom_job.spec import CustomJobSettings, make_spec
from tfx_distribute.pipelines.machines import machine_checks, machine_types
from tfx_distribute.pipelines.runners.vertex import machines as vertex_machines
from tfx_distribute.pipelines.runners.vertex import trainer_settings
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_info, strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution

FLEX_START = "FLEX_START"
FLEX_START_ACCELERATORS = (
    "nvidia-l4",
    "nvidia-tesla-a100",
    "nvidia-a100-80gb",
    "nvidia-h100-80gb",
    "nvidia-h100-mega-80gb",
    "nvidia-h200-141gb",
)
FLEX_START_SECONDS = 7 * 24 * 3600


def validate(spec: PipelineSpec) -> VertexSettings:
    """Checks that a pipeline can run on Vertex AI.

    Returns:
      The settings of Vertex AI in the pipeline file.

    Raises:
      ConfigurationError: It cannot run there; the message says what to write instead.
    """
    settings = spec.targets.find(VertexSettings)
    if settings is None:
        raise ConfigurationError("targets.vertex: is missing; write at least its image and pipeline_root")
    for setting in ("project", "region"):
        if getattr(settings, setting) is None:
            raise ConfigurationError(f"targets.vertex.{setting}: is missing; write it, or give --{setting} with the command")
    if settings.tensorboard and not settings.service_account:
        raise ConfigurationError(
            "targets.vertex.service_account: is missing, and only with one can training write to a TensorBoard instance; "
            "write one with the roles roles/storage.admin and roles/aiplatform.user"
        )
    name, source = spec.data.source
    addresses = {f"data.{name}": source if name != "example_gen" else None, "data.schema_file": spec.data.schema_file}
    addresses["trainer.base_model"] = None if spec.trainer.base_model in ("", LATEST_BLESSED) else spec.trainer.base_model
    addresses["push.directory"] = spec.push.directory if spec.push else None
    for setting, path in addresses.items():
        if path is not None and not path.startswith("gs://"):
            raise ConfigurationError(
                f"{setting}: {path} cannot be reached by a step; for Vertex AI write an address such as gs://bucket/folder"
            )
    for setting in ("tensorboard", "encryption_spec_key_name"):
        name = getattr(settings, setting)
        if name and f"/locations/{settings.region}/" not in name:
            raise ConfigurationError(
                f"targets.vertex.{setting}: {name} is not in {settings.region}, where the pipeline runs; "
                "write one of that region"
            )
    _check_networks(settings)
    distribution = spec.trainer.parameters.distribution
    worker = machine_of(spec.resources, TRAINER)
    machine_checks.check_waiting_step(spec.resources, settings.training)
    machine_checks.check_all(spec.resources, "vertex")
    _check_regions(spec.resources, settings)
    for name, machine in spec.resources.items():
        if name not in (TRAINER, PARAMETER_SERVER):
            check_step(name, machine)
    machine_checks.check_trainer(worker, distribution)
    if distribution.all_reduce == strategy_info.REDUCTION_SERVER and not worker.accelerator:
        raise ConfigurationError(
            "resources.Trainer.accelerator: is missing, and reduction servers sum what GPUs send; write the kind of GPU, "
            "such as nvidia-l4, or all_reduce: auto"
        )
    if worker.spot and settings.reservation:
        raise ConfigurationError(
            "targets.vertex.reservation: spot machines come from no reservation; leave it out, or resources.Trainer.spot"
        )
    _check_spot(spec.resources, distribution)
    if settings.training == "step":
        if reason := trainer_settings.unsupported_in_step(worker, settings):
            raise ConfigurationError(f"targets.vertex.training: a step has no {reason}; write custom_job or auto")
        check_step_resources(TRAINER, vertex_machines.make_resource_spec(worker))
        strategy_table.check_all_reduce(distribution, "a step")
    try:
        reduction_server = machine_types.find(settings.reduction_server_machine_type)
    except ConfigurationError as error:
        raise ConfigurationError(f"targets.vertex.reduction_server_{error}") from error
    if "pd-ssd" not in reduction_server.boot_disk_types:
        raise ConfigurationError(
            f"targets.vertex.reduction_server_machine_type: {settings.reduction_server_machine_type} does not start from "
            "the service's default disk (pd-ssd), which reduction servers have; write a type such as n1-highcpu-16"
        )
    launcher = trainer_settings.launcher(spec.name, spec.resources, settings)
    _check_scheduling(settings, worker, distribution, launcher)
    return settings


def find_warnings(spec: PipelineSpec, settings: VertexSettings) -> list[str]:
    """Returns which machines of a training may not start, and what is idle.

    Args:
      spec: The pipeline.
      settings: Its settings of Vertex AI.
    """
    worker = machine_of(spec.resources, TRAINER)
    warnings = machine_checks.warn_of_idle_devices(worker, spec.trainer.parameters.distribution)
    machine_type = vertex_machines.find_machine_type(worker)
    is_on_demand = not worker.spot and settings.scheduling_strategy != FLEX_START
    if machine_type in machine_types.NOT_ON_DEMAND and is_on_demand:
        warnings.append(
            f"resources.{TRAINER}.accelerator_count: Compute Engine starts {machine_type} only as a spot or flex-start "
            f"machine; write spot: true, targets.vertex.scheduling_strategy: {FLEX_START}, or accelerator_count: 8"
        )
    return warnings


def _check_networks(settings: VertexSettings) -> None:
    """Checks the network of machines, as far as the request tells."""
    interface = settings.psc_interface_config
    if settings.network and interface:
        raise ConfigurationError(
            "targets.vertex.network: machines reach a network by peering or through an interface; leave network or "
            "psc_interface_config out"
        )
    if settings.network and not settings.network.split("/")[1].isdigit():
        raise ConfigurationError(
            f"targets.vertex.network: {settings.network} names a project by its id; write its number, which `gcloud "
            f"projects describe {settings.network.split('/')[1]} --format='value(projectNumber)'` prints"
        )
    attachment = interface.network_attachment if interface else ""
    if "/" in attachment and f"/regions/{settings.region}/" not in attachment:
        raise ConfigurationError(
            f"targets.vertex.psc_interface_config.network_attachment: {attachment} is not in {settings.region}, where the "
            "pipeline runs; write one of that region"
        )


def _check_regions(resources: Mapping[str, MachineSpec], settings: VertexSettings) -> None:
    """Checks that the region has the accelerators and the reservation."""
    for name, machine in resources.items():
        try:
            machine_types.check_region(machine.accelerator, settings.region)
        except ConfigurationError as error:
            raise ConfigurationError(f"resources.{name}.{error}") from error
    if settings.reservation and f"/zones/{settings.region}-" not in settings.reservation:
        raise ConfigurationError(
            f"targets.vertex.reservation: {settings.reservation} is not in a zone of {settings.region}, where the pipeline "
            "runs; write one of that region, which `gcloud compute reservations list` shows"
        )


def _check_spot(resources: Mapping[str, MachineSpec], distribution: Distribution) -> None:
    """Checks that all machines of a training are spot machines, or none is."""
    worker, parameter_server = machine_of(resources, TRAINER), machine_of(resources, PARAMETER_SERVER)
    is_used = PARAMETER_SERVER in resources or distribution.info.parameter_servers
    if is_used and worker.spot != parameter_server.spot:
        raise ConfigurationError(
            f"resources.{PARAMETER_SERVER}.spot: is {str(parameter_server.spot).lower()}, and resources.{TRAINER}.spot "
            f"{str(worker.spot).lower()}, but Vertex AI takes all machines of a training from spot machines, or none; write "
            "the same in both"
        )


def _check_scheduling(
    settings: VertexSettings, worker: MachineSpec, distribution: Distribution, launcher: CustomJobSettings
) -> None:
    """Checks what Vertex AI requires of jobs that wait for all of their machines.

    Source: https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws
    """
    if settings.scheduling_strategy != FLEX_START:
        if settings.max_wait_duration is not None:
            raise ConfigurationError(
                f"targets.vertex.max_wait_duration: only {FLEX_START} waits; write scheduling_strategy: {FLEX_START} too, "
                "or leave it out"
            )
        return
    setting = f"targets.vertex.scheduling_strategy: {FLEX_START}"
    if worker.spot or settings.reservation:
        other = f"resources.{TRAINER}.spot" if worker.spot else "targets.vertex.reservation"
        raise ConfigurationError(f"{setting} is a way to get machines, and so is {other}; leave one of them out")
    if worker.accelerator not in FLEX_START_ACCELERATORS:
        raise ConfigurationError(
            f"{setting} is for some kinds of GPU, and resources.{TRAINER}.accelerator is {worker.accelerator or 'missing'}; "
            f"write one of {', '.join(FLEX_START_ACCELERATORS)}, or scheduling_strategy: STANDARD"
        )
    if (settings.timeout or 0) > FLEX_START_SECONDS:
        raise ConfigurationError(
            f"targets.vertex.timeout: with {FLEX_START}, training takes at most seven days; write {FLEX_START_SECONDS}"
        )
    pools = make_spec("name", "job.json", distribution, {}, launcher)["job_spec"]["worker_pool_specs"]
    machines = {str(pool["machine_spec"]) for pool in pools if pool}
    if len(machines) > 1:
        raise ConfigurationError(
            f"{setting} gives all processes the same kind of machine, and this training has several; write a strategy "
            "without parameter servers and all_reduce: auto, or scheduling_strategy: STANDARD"
        )


def check_step(name: str, machine: MachineSpec) -> None:
    """Checks that a step can have a machine; only training can have any.

    Args:
      name: Key of the machine in `resources`.
      machine: The machine.

    Raises:
      ConfigurationError: A step cannot have it.
    """
    if reason := trainer_settings.unsupported_in_step(machine):
        raise ConfigurationError(
            f"resources.{name}: a step has no {reason}; only training has: write it under resources.{TRAINER} or "
            f"resources.{PARAMETER_SERVER}"
        )
    check_step_resources(name, vertex_machines.make_resource_spec(machine))
    if machine.accelerator:
        try:
            vertex_machines.find_machine_type(machine)
        except ConfigurationError as error:
            raise ConfigurationError(f"resources.{name}.{error}") from error


def check_step_resources(name: str, spec: Mapping[str, Any]) -> None:
    """Checks that Vertex AI has a machine for a step.

    Args:
      name: Key of the machine in `resources`.
      spec: The resources of the step.

    Raises:
      ConfigurationError: The step asks for more than the largest machine has.
    """
    if excess := vertex_machines.describe_excess(spec):
        raise ConfigurationError(
            f"resources.{name}: {excess}; ask for less, or have Beam run on other machines (beam.runner: dataflow)"
        )

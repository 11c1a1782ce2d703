"""Checks that a pipeline can run on Vertex AI. Imports neither TFX nor TensorFlow."""

from tfx_distribute.pipelines.machines import machine_checks
from tfx_distribute.pipelines.runners.vertex import trainer_settings
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_info, strategy_table


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
    distribution = spec.trainer.parameters.distribution
    worker = machine_of(spec.resources, TRAINER)
    machine_checks.check_waiting_step(spec.resources, settings.training)
    machine_checks.check_all(spec.resources, "vertex")
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
    if settings.training == "step":
        if reason := trainer_settings.unsupported_in_step(worker, settings):
            raise ConfigurationError(f"targets.vertex.training: a step has no {reason}; write custom_job or auto")
        strategy_table.check_all_reduce(distribution, "a step")
    trainer_settings.launcher(spec.name, spec.resources, settings)
    return settings


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

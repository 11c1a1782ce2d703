"""Checks that a pipeline can run on Vertex AI. Imports neither TFX nor TensorFlow.

Only mistakes that the service cannot see are refused here: settings without effect, and
settings that contradict each other.
"""

from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.targets.vertex import machines as vertex_machines
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_info, strategy_table


def check(spec: PipelineSpec, settings: VertexSettings) -> None:
    """Checks what `RemoteTarget.validate` leaves to Vertex AI."""
    for setting in ("project", "region"):
        if getattr(settings, setting) is None:
            raise ConfigurationError(f"targets.vertex.{setting}: is missing; write it, or give --{setting} with the command")
    _check_machines(spec, settings)
    worker = machine_of(spec.resources, TRAINER)
    if settings.training == "step":
        if reason := vertex_machines.unsupported_in_step(worker, settings):
            raise ConfigurationError(f"targets.vertex.training: a step has no {reason}; write custom_job or auto")
        strategy_table.check_all_reduce(spec.trainer.parameters.distribution, "a step")
    vertex_machines.launcher_settings(spec.name, spec.resources, settings)  # raises if there is no such machine


def _check_machines(spec: PipelineSpec, settings: VertexSettings) -> None:
    """Checks that the machines suit the strategy, each other and the settings."""
    distribution, resources = spec.trainer.parameters.distribution, spec.resources
    worker, parameter_server = machine_of(resources, TRAINER), machine_of(resources, PARAMETER_SERVER)
    accelerators.check_all(resources, "vertex")
    for name, machine in resources.items():
        if name not in (TRAINER, PARAMETER_SERVER):
            check_step(name, machine)
    if distribution.all_reduce == strategy_info.REDUCTION_SERVER and not worker.accelerator:
        raise ConfigurationError(
            "resources.Trainer.accelerator: is missing, and reduction servers sum what GPUs send; write the kind of GPU, "
            "such as nvidia-l4, or all_reduce: auto"
        )
    is_used = PARAMETER_SERVER in resources or distribution.info.parameter_servers
    if is_used and worker.spot != parameter_server.spot:
        raise ConfigurationError(
            f"resources.{PARAMETER_SERVER}.spot: is {str(parameter_server.spot).lower()}, and resources.{TRAINER}.spot "
            f"{str(worker.spot).lower()}, but Vertex AI takes all machines of a training from spot machines, or none; write "
            "the same in both"
        )
    if worker.spot and settings.scheduling_strategy:
        raise ConfigurationError(
            f"targets.vertex.scheduling_strategy: {settings.scheduling_strategy} is a way to get machines, and so is "
            f"resources.{TRAINER}.spot; leave one of them out"
        )


def check_step(name: str, machine: MachineSpec) -> None:
    """Checks that a step can have a machine; only training can have any."""
    if reason := vertex_machines.unsupported_in_step(machine):
        raise ConfigurationError(
            f"resources.{name}: a step has no {reason}; only training has: write it under resources.{TRAINER} or "
            f"resources.{PARAMETER_SERVER}"
        )

"""What a pipeline file says of Vertex AI, checked as a whole, and what follows. Imports neither TFX nor TensorFlow."""

from collections.abc import Mapping

from tfx_distribute.components.launchers.custom_job.spec import CustomJobSettings
from tfx_distribute.pipelines.machines import trainer_checks
from tfx_distribute.pipelines.runners.vertex import machines as vertex_machines
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.spec.targets import VertexTarget
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table

_DISK = ("boot_disk_type", "boot_disk_size_gb")
_OF_CUSTOM_JOBS = ("reservation", "tensorboard", "timeout", *_DISK)


def validate_target(spec: PipelineSpec) -> VertexTarget:
    """The target, which goes with the rest of the pipeline.

    Raises:
      ConfigurationError: It does not; the message says what to write instead.
    """
    target = spec.targets.vertex
    if target is None:
        raise ConfigurationError("targets.vertex: is missing; write at least its image and pipeline_root")
    for setting in ("project", "region"):
        if getattr(target, setting) is None:
            raise ConfigurationError(f"targets.vertex.{setting}: is missing; write it, or give --{setting} with the command")
    if target.tensorboard and not target.service_account:
        raise ConfigurationError(
            "targets.vertex.service_account: is missing, and only with one can training write to a TensorBoard instance; "
            "write one with the roles roles/storage.admin and roles/aiplatform.user"
        )
    name, source = spec.data.source
    addresses = {f"data.{name}": source if name != "example_gen" else None, "data.schema_file": spec.data.schema_file}
    addresses["push.directory"] = spec.push.directory if spec.push else None
    for setting, path in addresses.items():
        if path is not None and not path.startswith("gs://"):
            raise ConfigurationError(
                f"{setting}: {path} cannot be reached by a step; for Vertex AI write an address such as gs://bucket/folder"
            )
    for setting in ("tensorboard", "encryption_spec_key_name"):
        name = getattr(target, setting)
        if name and f"/locations/{target.region}/" not in name:
            raise ConfigurationError(
                f"targets.vertex.{setting}: {name} is not in {target.region}, where the pipeline runs; write one of there"
            )
    distribution, _ = strategy_table.resolve(spec.trainer.parameters.distribution)
    worker = machine_of(spec.resources, TRAINER)
    trainer_checks.check(worker, distribution, "vertex")
    if distribution.all_reduce == strategy_table.REDUCTION_SERVER and not worker.accelerator:
        raise ConfigurationError(
            "resources.Trainer.accelerator: is missing, and reduction servers sum what GPUs send; write the kind of GPU, "
            "such as nvidia-l4, or all_reduce: auto"
        )
    if worker.spot and target.reservation:
        raise ConfigurationError(
            "targets.vertex.reservation: spot machines come from no reservation; leave it out, or resources.Trainer.spot"
        )
    if target.training == "step":
        if reason := unsupported_in_step(worker, target):
            raise ConfigurationError(f"targets.vertex.training: a step has no {reason}; write custom_job or auto")
        strategy_table.check_all_reduce(distribution, "a step")
    launcher(spec.name, spec.resources, target)
    return target


def unsupported_in_step(worker: MachineSpec, target: VertexTarget | None = None) -> str:
    """What a machine has that the machine of a step cannot have; empty where it can be one.

    Args:
      worker: The machine.
      target: What all training machines have beside.
    """
    if trainer_checks.is_tpu(worker):
        return f"TPU ({worker.accelerator})"
    if worker.machine_type:
        return f"machine type ({worker.machine_type})"
    if worker.spot:
        return "spot machine"
    for setting in _OF_CUSTOM_JOBS if target else ():
        if getattr(target, setting):
            return setting
    return ""


def launcher(name: str, resources: Mapping[str, MachineSpec], target: VertexTarget) -> CustomJobSettings:
    """What the Trainer is told of the worker pools that it may have to create.

    Args:
      name: Name of the pipeline.
      resources: Its machines.
      target: Where it runs.

    Raises:
      ConfigurationError: Vertex AI has no such machine.
    """
    worker = machine_of(resources, TRAINER)
    training = target.training
    if training == "auto" and unsupported_in_step(worker, target):
        training = "custom_job"
    return CustomJobSettings(
        name=name,
        project=target.project or "",
        location=target.region or "",
        image=target.image,
        worker=vertex_machines.make_machine_spec(worker, target.reservation),
        parameter_server=vertex_machines.make_machine_spec(machine_of(resources, PARAMETER_SERVER)),
        reduction_server={"machine_type": target.reduction_server_machine_type},
        reduction_server_replica_count=target.reduction_server_replica_count,
        training=training,
        disk_spec={name: value for name in _DISK if (value := getattr(target, name)) is not None},
        scheduling=_scheduling(worker, target),
        service_account=target.service_account,
        network=target.network,
        tensorboard=target.tensorboard,
        encryption_spec={"kms_key_name": target.encryption_spec_key_name} if target.encryption_spec_key_name else {},
        labels=target.labels,
    )


def _scheduling(worker: MachineSpec, target: VertexTarget) -> dict[str, str | bool]:
    given: dict[str, str | bool] = {"strategy": "SPOT"} if worker.spot else {}
    if target.timeout:
        given["timeout"] = f"{target.timeout}s"
    if target.restart_job_on_worker_restart:
        given["restart_job_on_worker_restart"] = True
    return given


def checkpoint_dir(name: str, target: VertexTarget) -> str:
    """Where states of a pipeline's trainings are, so that a later run finds them: its steps have other addresses."""
    return f"{target.pipeline_root.rstrip('/')}/{name}/checkpoints"

"""Computes what a run would do: its processes, their TF_CONFIG, and the size of a step.

Needs no TensorFlow. Values that only the machine that will train can tell are None;
they are not guessed.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfx_distribute.components.tuner.search import Search, trial_options
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.spec.user_module import Module
from tfx_distribute.pipelines.targets.target import Target
from tfx_distribute.trainer_module.job import layout_rules, strategy_table
from tfx_distribute.trainer_module.job import shard_plan as shards_lib
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF,
    WORKER,
    Cluster,
    ClusterTask,
    is_server,
    replicas_of_roles,
)
from tfx_distribute.trainer_module.job.strategy_info import AUTO, StrategyInfo
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions


@dataclass(frozen=True)
class RolePlan:
    """The training processes of one role, which differ only in their index.

    `does` is the part of each in the training, and `writes` the outputs of each.
    """

    role: str
    num_processes: int
    does: str
    command: str
    writes: str


@dataclass(frozen=True)
class DataPlan:
    """The shards of the train split, and each process's share of them.

    Attributes:
      processes: Number of processes that read the shards.
      num_shards: Number of shards; None if it follows from the data.
      shards_per_process: Shards that each process reads.
      sharing: Processes that read each shard; 1 if each has its own shards.
    """

    processes: int
    num_shards: int | None = None
    shards_per_process: int | None = None
    sharing: int | None = None


@dataclass(frozen=True)
class RunPlan:
    """Plan of a run: its processes, the size of a step, and warnings.

    Attributes:
      pipeline: Name of the pipeline.
      strategy: Name of the strategy.
      chosen_for: Reason for the strategy if the parameter is `auto`; else empty.
      summary: One line about the strategy.
      num_processes: Number of training processes.
      roles: Their roles, in the order in which they start.
      tf_config: TF_CONFIG of each process, with ROLE and INDEX in place of its own;
        None for a process that trains alone, and where `launches` says what processes
        get.
      devices_per_process: Devices that each process trains on; None if the machine
        decides.
      num_replicas: Replicas that train in step; None if the machine decides.
      per_replica_batch_size: Examples that one replica processes at once.
      gradient_accumulation_steps: Batches of one replica in a training step.
      global_batch_size: Examples per training step; None if the machine decides.
      learning_rate_factor: Factor of the learning rate; None if the machine decides.
      data: The training data; None for a `run_fn`, which reads by itself.
      steps_per_epoch: Training steps per epoch; None if it is one pass over the data.
      train_steps: Total number of training steps; None if `epochs` is set.
      hparams: The module's hyperparameters.
      search: The search for some of them, with the length of its trials; None without
        `tune`.
      launches: The job that the Trainer's step creates on the target to run these
        processes; None if they run in the step itself or on this machine. Name and
        address of the job are placeholders.
      warnings: What the user should know before the run.
    """

    pipeline: str
    strategy: str
    chosen_for: str
    summary: str
    num_processes: int
    roles: tuple[RolePlan, ...]
    tf_config: str | None
    devices_per_process: int | None
    num_replicas: int | None
    per_replica_batch_size: int
    gradient_accumulation_steps: int
    global_batch_size: int | None
    learning_rate_factor: float | None
    data: DataPlan | None
    steps_per_epoch: int | None
    train_steps: int | None
    hparams: dict[str, Any]
    search: Search | None
    launches: dict[str, Any] | None
    warnings: tuple[str, ...]


def make_plan(spec: PipelineSpec, module: Module, target: Target[Any]) -> RunPlan:
    """Computes what a run of a pipeline would do on a target."""
    parameters = spec.trainer.parameters
    distribution = parameters.distribution
    row = distribution.info
    devices = strategy_table.devices_per_process(distribution)
    if devices is None and distribution.strategy != "tpu":
        devices = target.count_devices()
    replicas = replicas_in_step(distribution, devices)
    replica_batch = parameters.per_replica_batch_size * parameters.gradient_accumulation_steps
    batch = replicas and replicas * replica_batch
    # A run_fn reads its data, and decides on its batch, by itself.
    is_run_fn = module.train == "run_fn"
    data = None if is_run_fn else _data(spec.shards.num_shards, strategy_table.reading_processes(distribution))
    roles = replicas_of_roles(distribution)
    launches = target.launches()
    return RunPlan(
        pipeline=spec.name,
        strategy=distribution.strategy,
        chosen_for=strategy_table.choose(distribution)[1] if parameters.strategy == AUTO else "",
        summary=row.summary,
        num_processes=sum(roles.values()),
        roles=tuple(_plan_role(distribution, role, count) for role, count in roles.items()),
        tf_config=_tf_config(roles) if sum(roles.values()) > 1 and not launches else None,
        devices_per_process=devices,
        num_replicas=replicas,
        per_replica_batch_size=parameters.per_replica_batch_size,
        gradient_accumulation_steps=parameters.gradient_accumulation_steps,
        global_batch_size=None if is_run_fn else batch,
        learning_rate_factor=_learning_rate_factor(parameters.training_options, replicas),
        data=data,
        steps_per_epoch=parameters.steps_per_epoch or None,
        train_steps=parameters.train_steps or None,
        hparams=dict(spec.trainer.hparams),
        search=_search(spec.tune, parameters.training_options) if spec.tune else None,
        launches=launches,
        warnings=(*_warnings(spec, distribution, row, data, devices), *target.find_warnings()),
    )


def _search(search: Search, options: TrainingOptions) -> Search:
    options = trial_options(search, options)
    changes = {"direction": search.goal, "epochs": options.epochs, "train_steps": options.train_steps}
    return search.model_copy(update=changes)


def replicas_in_step(distribution: Distribution, devices: int | None) -> int | None:
    """Returns the number of replicas that train in step; None if the machine decides.

    A worker of parameter servers does not wait for others, and so counts alone.
    """
    if distribution.strategy == "model_parallel" and distribution.mesh:
        return layout_rules.parse_mesh(distribution.mesh)[0]
    return devices and devices * strategy_table.readers(distribution)


def _learning_rate_factor(options: TrainingOptions, replicas: int | None) -> float | None:
    """Returns the factor of the learning rate; None if the machine decides."""
    scaling = options.learning_rate_scaling
    if replicas is None and scaling != "none":
        return None
    return strategy_table.learning_rate_factor(scaling, (replicas or 1) * options.gradient_accumulation_steps)


def _plan_role(distribution: Distribution, role: str, num_processes: int) -> RolePlan:
    return RolePlan(
        role=role,
        num_processes=num_processes,
        does=_part(distribution, ClusterTask(role, 0)),
        command="python -m tfx_distribute.trainer_module --job job.json",
        writes="the model, TensorBoard logs" if role == CHIEF else "nothing",
    )


def _part(distribution: Distribution, task: ClusterTask) -> str:
    if not is_server(distribution, task):
        asynchronous = distribution.info.parameter_servers
        return "coordinates: gives steps to workers" if asynchronous else "trains"
    return "trains, whenever it is free" if task.role == WORKER else "holds variables"


def _tf_config(roles: Mapping[str, int]) -> str:
    addresses = ["127.0.0.1:PORT"] * sum(roles.values())
    document = json.loads(Cluster.of(roles, addresses).tf_config(ClusterTask("ROLE", 0)))
    document["task"]["index"] = "INDEX"
    return json.dumps(document)


def _data(num_shards: int, processes: int) -> DataPlan:
    if not num_shards:
        return DataPlan(processes)
    share = shards_lib.share(num_shards, processes)
    return DataPlan(processes, num_shards, share.shards, share.sharing)


def _warnings(
    spec: PipelineSpec,
    distribution: Distribution,
    row: StrategyInfo,
    data: DataPlan | None,
    devices: int | None,
) -> list[str]:
    warnings = []
    is_run_fn = data is None
    if devices is None:
        warnings.append("the TPU decides on the replicas, one a core, and on the global batch")
    if (devices or 0) * strategy_table.readers(distribution) == 1 and row.all_devices:
        warnings.append(f"one device: strategy {row.name} has nothing to distribute over; raise accelerator_count")
    if row.parameter_servers:
        warnings.append("workers do not wait for each other: two runs with the same seed differ")
    if row.name == "model_parallel" and not distribution.layout_rules:
        warnings.append("no layout_rules: every device holds the whole model")
    if is_run_fn and row.name != "default":
        warnings.append("a run_fn trains under this strategy only if it takes it from get_strategy()")
    if data and data.sharing and data.sharing > 1 and data.num_shards:
        even_shards = data.processes * math.ceil(data.num_shards / data.processes)
        warnings.append(
            f"{data.num_shards} shards do not divide among {data.processes} processes: each reads {data.shards_per_process} "
            f"of them whole to take 1 in {data.sharing} of their examples; write num_shards={even_shards}"
        )
    if data and row.fixed_batches:
        warnings.append(f"all batches have the same size ({row.fixed_batches}): an epoch may end off the last example")

    if "eval" not in spec.data.splits and not is_run_fn:
        warnings.append("no split is called 'eval': nothing is evaluated while training")
    return warnings

"""Computes what a run would do: its processes, their TF_CONFIG, and the size of a step.

Needs no TensorFlow. Values that only the machine that will train can tell are None;
they are not guessed.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfx_distribute.components.tuner.search import Search, trial_options
from tfx_distribute.components.tuner.value_range import Value
from tfx_distribute.pipelines.spec import data_checks
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
from tfx_distribute.trainer_module.job.step_plan import plan_pass
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
    """The training data, and each process's share of it.

    Counts are approximate, since splits are drawn by hash.

    Attributes:
      num_examples: Examples of the train split; None if only a run can tell.
      num_bytes: Estimated bytes of its shards, from the size of the source; a transform
        may change it.
      num_shards: Shards of the train split; None if only a run can tell.
      chosen_for: Reason for the number of shards; empty if the pipeline sets it, or
        if only a run can tell.
      processes: Number of processes that read the shards.
      shards_per_process: Shards that each process reads.
      sharing: Processes that read each shard; 1 if each has its own shards.
      examples_per_process: Examples that each process reads in an epoch.
      examples_left_over: Examples of an epoch that are left to the next one, since all
        batches have the same size.
    """

    num_examples: int | None
    num_bytes: int | None
    num_shards: int | None
    chosen_for: str
    processes: int
    shards_per_process: int | None
    sharing: int | None
    examples_per_process: int | None
    examples_left_over: int | None


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
      warmup_steps: Training steps in which the learning rate rises to its value.
      data: The training data; None for a `run_fn`, which reads by itself.
      steps_per_epoch: Training steps per epoch, approximately.
      train_steps: Total number of training steps; approximate if `epochs` is set.
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
    warmup_steps: int
    data: DataPlan | None
    steps_per_epoch: int | None
    train_steps: int | None
    hparams: dict[str, Any]
    search: Search | None
    launches: dict[str, Any] | None
    warnings: tuple[str, ...]


def make_plan(spec: PipelineSpec, module: Module, target: Target[Any] | None = None) -> RunPlan:
    """Computes what a run of a pipeline would do.

    ```python
    plan = make_plan(spec, user_module.find(spec))
    print(as_text(plan))
    ```

    A `target` of None is this machine, without checks of its data and folders.
    """
    parameters = spec.trainer.parameters
    distribution = parameters.distribution
    row = distribution.info
    devices = strategy_table.devices_per_process(distribution)
    if devices is None and target and distribution.strategy != "tpu":
        devices = target.count_devices()
    replicas = replicas_in_step(distribution, devices)
    replica_batch = parameters.per_replica_batch_size * parameters.gradient_accumulation_steps
    batch = replicas and replicas * replica_batch
    # A run_fn reads its data, and decides on its batch, by itself.
    is_run_fn = module.train == "run_fn"
    runs_here = target is None or target.runs_here
    data = None if is_run_fn else _data(spec, distribution, row, replicas, batch, runs_here)
    examples = data.num_examples if data else None
    steps_per_epoch = None
    if examples and replicas:
        steps_per_epoch = max(1, plan_pass(parameters.training_options, examples, replicas, bool(row.fixed_batches))[0])
    train_steps = parameters.train_steps or (steps_per_epoch and parameters.epochs * steps_per_epoch)
    steps_per_epoch = parameters.steps_per_epoch or steps_per_epoch
    roles = replicas_of_roles(distribution)
    launches = target.launches() if target else None
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
        warmup_steps=parameters.warmup_steps,
        data=data,
        steps_per_epoch=steps_per_epoch,
        train_steps=train_steps or None,
        hparams=dict(spec.trainer.hparams),
        search=_search(spec.tune, parameters.training_options, spec.trainer.hparams) if spec.tune else None,
        launches=launches,
        warnings=(
            *_warnings(spec, distribution, row, data, devices, replicas, batch),
            *(target.find_warnings() if target else ()),
        ),
    )


def _search(search: Search, options: TrainingOptions, hparams: Mapping[str, Value]) -> Search:
    options = trial_options(search, options, hparams)
    changes = {"direction": search.goal, "epochs": options.epochs, "train_steps": options.train_steps}
    return search.model_copy(update=changes)


def replicas_in_step(distribution: Distribution, devices: int | None) -> int | None:
    """Returns the number of replicas that train in step; None if the machine decides.

    A worker of parameter servers does not wait for others, and so counts alone. Under
    `model_parallel`, a replica is a group of devices that holds the whole model.
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


def _data(
    spec: PipelineSpec,
    distribution: Distribution,
    row: StrategyInfo,
    replicas: int | None,
    batch: int | None,
    runs_here: bool,
) -> DataPlan:
    processes = strategy_table.reading_processes(distribution)
    # A step that runs elsewhere may read files that are not on this machine.
    is_readable = runs_here or (not spec.data.has_spans and Path(spec.data.source[1]).exists())
    totals = data_checks.count_examples_and_bytes(spec.data) if is_readable else None
    share = spec.data.splits["train"] / sum(spec.data.splits.values())
    examples, num_bytes = (round(totals[0] * share), round(totals[1] * share)) if totals else (None, None)
    num_shards, reason = spec.shards.num_shards or None, ""
    if not num_shards and examples and num_bytes is not None:
        num_shards, reason = shards_lib.num_shards(examples, num_bytes, processes)
    process_share = shards_lib.share(num_shards, processes) if num_shards else None
    left_over = None
    if examples and batch and replicas:
        steps, fixed = plan_pass(spec.trainer.parameters.training_options, examples, replicas, bool(row.fixed_batches))
        left_over = max(0, examples - steps * batch) if fixed else 0
    return DataPlan(
        num_examples=examples,
        num_bytes=num_bytes,
        num_shards=num_shards,
        chosen_for=reason,
        processes=processes,
        shards_per_process=process_share.shards if process_share else None,
        sharing=process_share.sharing if process_share else None,
        examples_per_process=examples and round(examples / processes),
        examples_left_over=left_over,
    )


def _warnings(
    spec: PipelineSpec,
    distribution: Distribution,
    row: StrategyInfo,
    data: DataPlan | None,
    devices: int | None,
    replicas: int | None,
    batch: int | None,
) -> list[str]:
    warnings = []
    is_run_fn, examples = data is None, data.num_examples if data else None
    if devices is None and row.name == "tpu":
        warnings.append("the TPU decides on the replicas, one a core, and on the global batch")
    elif devices is None:
        warnings.append(
            "accelerator_count is 0: the GPUs that a process sees decide on the replicas, and on the global batch"
        )
    if (devices or 0) * strategy_table.readers(distribution) == 1 and row.all_devices:
        warnings.append(f"one device: strategy {row.name} has nothing to distribute over; raise accelerator_count")
    if row.parameter_servers:
        warnings.append("workers do not wait for each other: two runs with the same seed differ")
    if row.name == "model_parallel" and not distribution.layout_rules:
        warnings.append("no layout_rules: every device holds the whole model")
    if is_run_fn and row.name != "default":
        warnings.append("a run_fn trains under this strategy only if it takes it from get_strategy()")
    if batch and examples is not None and examples < batch:
        warnings.append(f"the train split has about {examples} examples, fewer than one global batch of {batch}")
    if data and data.sharing and data.sharing > 1 and data.num_shards:
        even_shards = data.processes * math.ceil(data.num_shards / data.processes)
        warnings.append(
            f"{data.num_shards} shards do not divide among {data.processes} processes: each reads {data.shards_per_process} "
            f"of them whole to take 1 in {data.sharing} of their examples; write num_shards={even_shards}"
        )
    if data and examples and spec.shards.num_shards:
        buckets = spec.data.splits
        for name in buckets:
            split_examples = round(examples * buckets[name] / buckets["train"])
            if split_examples < spec.shards.num_shards:
                warnings.append(
                    f"the split {name!r} has about {split_examples} examples, fewer than {spec.shards.num_shards} shards"
                )
    if data and row.fixed_batches:
        warnings.append(f"all batches have the same size ({row.fixed_batches}): an epoch may end off the last example")

    if "eval" not in spec.data.splits and not is_run_fn:
        warnings.append("no split is called 'eval': nothing is evaluated while training")
    return warnings

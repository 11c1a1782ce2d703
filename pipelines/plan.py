"""What a run would be, worked out without TensorFlow: who takes part, what each is told, how much one step is.

Pure: a specification in, a `RunPlan` out. What depends on the machine that will train is said to, and not guessed.
"""

import itertools
from dataclasses import dataclass
from typing import Any

from tfx_distribute.pipelines import preflight
from tfx_distribute.pipelines.spec import PipelineSpec
from tfx_distribute.pipelines.user_module import Module
from tfx_distribute.trainer_module import compatibility
from tfx_distribute.trainer_module.cluster import CHIEF_TASK, Cluster, replicas_of_roles
from tfx_distribute.trainer_module.job import Distribution

FIRST_PORT = 2222  # stands for whichever port a launcher gives; the port of TFJob


@dataclass(frozen=True)
class ProcessPlan:
    """One training process.

    Attributes:
      task: Who it is, such as `chief` or `worker 0`.
      command: What it runs.
      tf_config: Its TF_CONFIG; None for a process that trains alone.
      writes: What it leaves behind.
    """

    task: str
    command: str
    tf_config: str | None
    writes: str


@dataclass(frozen=True)
class RunPlan:
    """What a run would be.

    Attributes:
      pipeline: Name of the pipeline.
      strategy: Name of the strategy.
      chosen_for: Why it is that one, where the parameter says `auto`; else empty.
      summary: What the strategy is.
      processes: The training processes, in the order in which they start.
      devices_per_process: Devices of each that train; None where the machine decides.
      num_replicas: Replicas that train in step; None where the machine decides.
      per_replica_batch_size: Examples that one replica takes in one step.
      global_batch_size: Examples per training step; None where the machine decides.
      learning_rate_factor: What the learning rate is multiplied by; None where the machine decides.
      warmup_steps: Training steps in which the learning rate rises to its value.
      train_examples: About how many examples are trained on; None where only a run can tell.
      steps_per_epoch: About how many steps see each of them once.
      train_steps: Training steps in all, about, where `epochs` says how long.
      hparams: The module's hyperparameters.
      warnings: What a person should know before the run.
    """

    pipeline: str
    strategy: str
    chosen_for: str
    summary: str
    processes: tuple[ProcessPlan, ...]
    devices_per_process: int | None
    num_replicas: int | None
    per_replica_batch_size: int
    global_batch_size: int | None
    learning_rate_factor: float | None
    warmup_steps: int
    train_examples: int | None
    steps_per_epoch: int | None
    train_steps: int | None
    hparams: dict[str, Any]
    warnings: tuple[str, ...]


def make_plan(spec: PipelineSpec, module: Module) -> RunPlan:
    """Works out what a run of a pipeline would be.

    Args:
      spec: The pipeline, with the values of its parameters.
      module: The user's module.
    """
    parameters = spec.trainer.parameters
    distribution, reason = compatibility.resolve(parameters.distribution)
    row = compatibility.strategy_named(distribution.strategy)
    devices = _devices(parameters.accelerator_type, parameters.accelerator_count, row.all_devices)
    replicas = devices and devices * parameters.num_workers
    batch = replicas and replicas * parameters.per_replica_batch_size
    # A run_fn reads, and decides on its batch, by itself.
    by_itself = module.train == "run_fn"
    examples = None if by_itself else _train_examples(spec)
    steps_per_epoch = max(1, round(examples / batch)) if examples and batch else None
    train_steps = parameters.train_steps or (steps_per_epoch and parameters.epochs * steps_per_epoch)
    return RunPlan(
        pipeline=spec.name,
        strategy=distribution.strategy,
        chosen_for=reason,
        summary=row.summary,
        processes=_processes(distribution),
        devices_per_process=devices,
        num_replicas=replicas,
        per_replica_batch_size=parameters.per_replica_batch_size,
        global_batch_size=None if by_itself else batch,
        learning_rate_factor=replicas and compatibility.learning_rate_factor(parameters.learning_rate_scaling, replicas),
        warmup_steps=parameters.warmup_steps,
        train_examples=examples,
        steps_per_epoch=steps_per_epoch,
        train_steps=train_steps or None,
        hparams=dict(spec.trainer.hparams),
        warnings=tuple(_warnings(spec, row, by_itself, devices, replicas, batch, examples)),
    )


def _devices(kind: str, count: int, all_devices: bool) -> int | None:
    if not all_devices:
        return 1
    if count:
        return count
    return 1 if kind == "cpu" else None


def _processes(distribution: Distribution) -> tuple[ProcessPlan, ...]:
    roles = replicas_of_roles(distribution)
    cluster = Cluster.of(roles, (f"127.0.0.1:{port}" for port in itertools.count(FIRST_PORT)))
    return tuple(
        ProcessPlan(
            task=str(task),
            command="python -m tfx_distribute.trainer_module --job job.json",
            tf_config=cluster.tf_config(task) if len(cluster.tasks) > 1 else None,
            writes="the model, TensorBoard logs" if task == CHIEF_TASK else "nothing",
        )
        for task in cluster.tasks
    )


def _train_examples(spec: PipelineSpec) -> int | None:
    """The rows of local CSV files times the train split's share; other sources are known when they have been read."""
    name, source = spec.data.source
    if name != "csv" or "://" in source:
        return None
    rows = sum(sum(1 for row in preflight.csv_rows(file) if row) - 1 for file in preflight.data_files(name, source))
    return round(rows * spec.data.splits["train"] / sum(spec.data.splits.values()))


def _warnings(
    spec: PipelineSpec,
    row: compatibility.Strategy,
    by_itself: bool,
    devices: int | None,
    replicas: int | None,
    batch: int | None,
    examples: int | None,
) -> list[str]:
    found = []
    if devices is None:
        found.append("accelerator_count is 0: the GPUs that a process sees decide on the replicas, and on the global batch")
    if replicas == 1 and row.all_devices:
        found.append(f"one replica: strategy {row.name} has nothing to distribute over; raise accelerator_count")
    if by_itself and row.name != "default":
        found.append("a run_fn trains under this strategy only if it takes it from get_strategy()")
    if batch and examples is not None and examples < batch:
        found.append(f"the train split has about {examples} examples, fewer than one global batch of {batch}")
    if "eval" not in spec.data.splits and not by_itself:
        found.append("no split is called 'eval': nothing is evaluated while training")
    return found

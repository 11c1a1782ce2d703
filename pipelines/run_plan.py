"""Computes what a run would do, and formats it as text.

Needs no TensorFlow. Values that only the machine that will train can tell are None;
they are not guessed.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tfx_distribute.components.tuner.search import Search, ValueRange, trial_options
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.spec.user_module import Module
from tfx_distribute.pipelines.targets.target import Target
from tfx_distribute.trainer_module.job import layout_rules, strategy_table
from tfx_distribute.trainer_module.job import shard_plan as shards_lib
from tfx_distribute.trainer_module.job.cluster import CHIEF, WORKER, Cluster, ClusterTask, is_server, replicas_of_roles
from tfx_distribute.trainer_module.job.strategy_info import AUTO
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions

BY_MACHINE = "decided by the machine"


class _Dumper(yaml.SafeDumper):
    """Writes numbers, such as exit codes, on one line."""

    def represent_list(self, data: Any) -> yaml.SequenceNode:
        has_numbers = bool(data) and all(isinstance(value, int) for value in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=has_numbers)


_Dumper.add_representer(list, _Dumper.represent_list)


@dataclass(frozen=True)
class RolePlan:
    """The training processes of one role, which differ only in their index.

    `does` is the part of each in the training, and `writes` the outputs of each.
    """

    role: str
    num_processes: int
    does: str
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
    devices = strategy_table.devices_per_process(distribution)
    if devices is None and distribution.strategy != "tpu":
        devices = target.count_devices()
    if distribution.strategy == "model_parallel" and distribution.mesh:
        replicas: int | None = layout_rules.parse_mesh(distribution.mesh)[0]
    else:  # a worker of parameter servers does not wait for others, and so counts alone
        replicas = devices and devices * strategy_table.readers(distribution)
    replica_batch = parameters.per_replica_batch_size * parameters.gradient_accumulation_steps
    batch = replicas and replicas * replica_batch
    factor, scaling = None, parameters.learning_rate_scaling
    if replicas is not None or scaling == "none":
        factor = strategy_table.learning_rate_factor(scaling, (replicas or 1) * parameters.gradient_accumulation_steps)
    # A run_fn reads its data, and decides on its batch, by itself.
    is_run_fn = module.train == "run_fn"
    data = None if is_run_fn else _data(spec.shards.num_shards, strategy_table.reading_processes(distribution))
    roles = replicas_of_roles(distribution)
    launches = target.launches()
    return RunPlan(
        pipeline=spec.name,
        strategy=distribution.strategy,
        chosen_for=strategy_table.choose(distribution)[1] if parameters.strategy == AUTO else "",
        summary=distribution.info.summary,
        num_processes=sum(roles.values()),
        roles=tuple(_plan_role(distribution, role, count) for role, count in roles.items()),
        tf_config=_tf_config(roles) if sum(roles.values()) > 1 and not launches else None,
        devices_per_process=devices,
        num_replicas=replicas,
        per_replica_batch_size=parameters.per_replica_batch_size,
        gradient_accumulation_steps=parameters.gradient_accumulation_steps,
        global_batch_size=None if is_run_fn else batch,
        learning_rate_factor=factor,
        data=data,
        steps_per_epoch=parameters.steps_per_epoch or None,
        train_steps=parameters.train_steps or None,
        hparams=dict(spec.trainer.hparams),
        search=_plan_search(spec.tune, parameters.training_options) if spec.tune else None,
        launches=launches,
        warnings=(*_warnings(spec, distribution, data, devices), *target.find_warnings()),
    )


def _plan_search(search: Search, options: TrainingOptions) -> Search:
    options = trial_options(search, options)
    changes = {"direction": search.goal, "epochs": options.epochs, "train_steps": options.train_steps}
    return search.model_copy(update=changes)


def _plan_role(distribution: Distribution, role: str, num_processes: int) -> RolePlan:
    if is_server(distribution, ClusterTask(role, 0)):
        does = "trains, whenever it is free" if role == WORKER else "holds variables"
    else:
        does = "coordinates: gives steps to workers" if distribution.info.parameter_servers else "trains"
    writes = "the model, TensorBoard logs" if role == CHIEF else "nothing"
    return RolePlan(role, num_processes, does, writes)


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


def _warnings(spec: PipelineSpec, distribution: Distribution, data: DataPlan | None, devices: int | None) -> list[str]:
    warnings = []
    row, is_run_fn = distribution.info, data is None
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


def as_text(plan: RunPlan) -> str:
    """Formats a plan: one step, then each role, warnings, and the job it launches."""
    rows = [
        ("pipeline", plan.pipeline),
        ("strategy", f"{plan.strategy}{f', chosen for {plan.chosen_for}' if plan.chosen_for else ''} ({plan.summary})"),
        ("processes", _processes(plan)),
        ("replicas", _value_or(plan.num_replicas, BY_MACHINE)),
        ("batch", _batch(plan)),
        ("steps", _steps(plan)),
    ]
    if plan.data:
        rows.append(("shards", _shards(plan.data)))
    if plan.learning_rate_factor != 1:
        factor = _value_or(plan.learning_rate_factor, f"a factor {BY_MACHINE}")
        rows.append(("learn rate", f"build_model's times {factor}"))
    if plan.hparams:
        rows.append(("hparams", ", ".join(f"{name}={value}" for name, value in plan.hparams.items())))
    if plan.search:
        space = ", ".join(f"{name}={_values(values)}" for name, values in plan.search.space.items())
        rows += [("search", _search(plan.search)), ("space", space)]
    lines = [f"{name:<11}{value}" for name, value in rows]
    for role in plan.roles:
        count = f" ({role.num_processes} processes)" if role.num_processes > 1 else ""
        lines += ["", f"{role.role}{count}: {role.does}"]
        lines += ["  runs       python -m tfx_distribute.trainer_module --job job.json", f"  writes     {role.writes}"]
    if plan.tf_config:
        lines += ["", f"TF_CONFIG  {plan.tf_config}"]
    if plan.warnings:
        lines += ["", *(f"warning: {warning}" for warning in plan.warnings)]
    if plan.launches:
        lines += ["", "They run as:", yaml.dump(plan.launches, Dumper=_Dumper, sort_keys=False).rstrip()]
    return "\n".join(lines)


def _processes(plan: RunPlan) -> str:
    each = " each" if plan.num_processes > 1 else ""
    if plan.devices_per_process is None:
        return f"{plan.num_processes}, devices{each and ' of each'} {BY_MACHINE}"
    return f"{plan.num_processes} with {_count(plan.devices_per_process, 'device')}{each}"


def _batch(plan: RunPlan) -> str:
    if plan.data is None:
        return "decided by the run_fn"
    times = plan.gradient_accumulation_steps
    replica_batch = f"{times} times {plan.per_replica_batch_size}" if times > 1 else str(plan.per_replica_batch_size)
    return f"{replica_batch} per replica, global {_value_or(plan.global_batch_size, BY_MACHINE)}"


def _search(search: Search) -> str:
    length = _count(search.epochs, "epoch") if search.epochs else _count(search.train_steps, "step")
    at_once = f", {search.num_parallel_trials} at a time" if search.num_parallel_trials > 1 else ""
    extreme = "largest" if search.goal == "max" else "smallest"
    trials = f"{_count(search.max_trials, 'trial')} ({search.oracle}) of {length}"
    if search.oracle == "hyperband":
        trials = f"hyperband, trials of at most {length}"
    return f"{trials}{at_once}, for the {extreme} {search.objective}; then the training with the best values"


def _values(values: ValueRange) -> str:
    if values.values:
        return "|".join(map(str, values.values))
    step = f" step {values.step:g}" if values.step else ""
    sampling = f" {values.sampling}" if values.sampling != "linear" else ""
    return f"{values.min:g}..{values.max:g}{step}{sampling}"


def _steps(plan: RunPlan) -> str:
    if plan.train_steps is None:
        return "known when the data has been read"
    return f"{plan.train_steps}{f', {plan.steps_per_epoch} per epoch' if plan.steps_per_epoch else ''}"


def _shards(data: DataPlan) -> str:
    if data.num_shards is None:
        return f"as many as suit the data and {_count(data.processes, 'process', 'processes')}"
    shared = f", shared with {_count(data.sharing - 1, 'other')}" if data.sharing and data.sharing > 1 else " of its own"
    return f"{data.num_shards}, {data.shards_per_process} per process{shared}"


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _value_or(value: float | None, otherwise: str) -> str:
    if value is None:
        return otherwise
    return str(value) if isinstance(value, int) else f"{value:g}"

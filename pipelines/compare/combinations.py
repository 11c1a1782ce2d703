"""Makes a pipeline of each combination, and finds those that cannot be trained.

Imports no TensorFlow: everything here is known before anything runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tfx_distribute.components.launchers.local import gpus as gpus_lib
from tfx_distribute.pipelines.compare import grid as grid_lib
from tfx_distribute.pipelines.plan.run_plan import replicas_in_step
from tfx_distribute.pipelines.spec import loader, user_module
from tfx_distribute.pipelines.spec.base import Scalar
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import shard_plan, strategy_table
from tfx_distribute.trainer_module.job.cluster import EVALUATOR, replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import Distribution

Scaling = Literal["weak", "strong"]

# Losses and times are averaged over windows of steps; the first one is the warm-up.
WINDOWS = 20
MAX_READERS = 256  # that the shards are divided among, for any combinations


@dataclass(frozen=True)
class Combination:
    """Values of parameters to train with, and what follows from them.

    Attributes:
      values: Name -> value, as asked.
      spec: The pipeline with these values, cut down to a measured training; None if
        that cannot be trained.
      problem: Why it cannot be trained; empty if it can.
      processes: Training processes, those of parameter servers included.
      devices: Devices that train, over all processes; 0 if the machine decides.
      replicas: Replicas that train in step; 0 if the machine decides.
      note: What is unfavourable about it, if anything.
    """

    values: Mapping[str, Scalar]
    spec: PipelineSpec | None
    problem: str = ""
    processes: int = 0
    devices: int = 0
    replicas: int = 0
    note: str = ""


def make(
    spec: PipelineSpec, grid: grid_lib.Grid, train_steps: int, scaling: Scaling, gpus: Sequence[str] = ()
) -> list[Combination]:
    """Makes all combinations of a grid.

    A combination that cannot be trained has its reason in `problem`. That is usual:
    with `strategy=one_device,multi_worker_mirrored` and `num_workers=1,2`, one of the
    four cannot. A value of which no combination can be trained is a mistake.

    ```python
    grid = {"strategy": ("multi_worker_mirrored",), "num_workers": (1, 2)}
    [combination.processes for combination in make(spec, grid, 200, "weak")]  # [1, 2]
    ```

    Args:
      spec: The pipeline.
      grid: The values to compare.
      train_steps: Training steps of each combination.
      scaling: `weak` keeps the batch of a replica, `strong` the global batch.
      gpus: GPUs of this machine.

    Raises:
      ConfigurationError: A value has no combination that can be trained, or the module
        cannot be measured.
    """
    combinations = [_make(spec, values, train_steps, scaling, gpus) for values in grid_lib.expand(grid)]
    _check_values(grid, combinations)
    if not grid and combinations[0].problem:
        raise ConfigurationError(combinations[0].problem)
    return combinations


def _check_values(grid: grid_lib.Grid, combinations: Sequence[Combination]) -> None:
    """Raises ConfigurationError for the first value without a combination to train.

    Values of exactly the same combinations are named together, because any of them may
    be wrong, unless the problem begins with the name of one.
    """
    untrainable: list[tuple[dict[str, Scalar], list[Combination]]] = []
    for name, allowed in grid.items():
        for value in allowed:
            mine = [each for each in combinations if repr(each.values[name]) == repr(value)]  # NaN is not equal to itself
            if all(each.problem for each in mine):
                untrainable.append(({name: value}, mine))
    if not untrainable:
        return
    mine = untrainable[0][1]
    values = {name: value for pair, others in untrainable if others == mine for name, value in pair.items()}
    problem = mine[0].problem
    if (named := problem.partition(":")[0]) in values:
        values = {named: values[named]}
    several = len({each.problem for each in mine}) > 1
    lead = f"cannot be trained in any combination; the first, {grid_lib.describe(mine[0].values)}: " if several else ""
    arguments = " ".join(f"-p {grid_lib.describe({name: value})}" for name, value in values.items())
    raise ConfigurationError(f"{arguments}: {lead}{problem}")


def _make(
    spec: PipelineSpec, values: Mapping[str, Scalar], train_steps: int, scaling: Scaling, gpus: Sequence[str]
) -> Combination:
    try:
        asked = loader.override(spec, values)
        distribution = asked.trainer.parameters.distribution
        if user_module.find(asked).train == "run_fn":
            raise ConfigurationError("module: a run_fn trains by itself, so its steps cannot be measured; write build_model")
        strategy_table.check_all_reduce(distribution, "this machine")
        return _measurable(asked, values, train_steps, scaling, gpus)
    except ConfigurationError as error:
        return Combination(values, None, problem=_without_arguments(str(error)))


def _measurable(
    asked: PipelineSpec, values: Mapping[str, Scalar], train_steps: int, scaling: Scaling, gpus: Sequence[str]
) -> Combination:
    distribution = replace(asked.trainer.parameters.distribution, num_evaluators=0)
    roles = replicas_of_roles(distribution)
    devices = _devices(distribution, gpus)
    replicas = replicas_in_step(distribution, devices)
    changes: dict[str, Scalar] = {
        "train_steps": train_steps,
        "epochs": 0,
        "steps_per_epoch": math.ceil(train_steps / WINDOWS),
        "validation_freq": 1,
        "eval_steps": 0,
        "num_evaluators": 0,
        "export_best": "",
        "export_mode": "",
        "keep_checkpoints": 0,
        "save_checkpoints_steps": 0,
        "profile_steps": "",
        "max_restarts": 0,
    }
    if scaling == "strong":
        changes["per_replica_batch_size"] = _divide_batch(asked, distribution, replicas)
    # The evaluation is left out afterwards: `latest_blessed` needs its thresholds.
    measured = asked.with_parameters(changes).model_copy(update={"tune": None, "evaluate": None, "push": None})
    readers = strategy_table.reading_processes(distribution)
    num_shards = asked.shards.num_shards
    note = ""
    if num_shards and shard_plan.share(num_shards, readers).sharing > 1:
        even = readers * math.ceil(num_shards / readers)
        note = f"{num_shards} shards do not divide among {readers} processes, which read some of them several times; "
        note += f"write num_shards={even}"
    trainers = distribution.num_workers if distribution.info.multi_worker else 1
    return Combination(
        values,
        measured,
        processes=sum(count for role, count in roles.items() if role != EVALUATOR),
        devices=(devices or 0) * trainers,
        replicas=replicas or 0,
        note=note,
    )


def _devices(distribution: Distribution, gpus: Sequence[str]) -> int | None:
    """Returns the devices of each training process on this machine; None if unknown.

    Raises:
      ConfigurationError: There are not enough GPUs for all processes.
    """
    trainers = distribution.num_workers if distribution.info.multi_worker else 1
    gpus_lib.assign(distribution, 0, trainers, list(gpus))
    devices = strategy_table.devices_per_process(distribution)
    if devices is None and distribution.strategy != "tpu":
        return max(1, len(gpus))
    return devices


def _divide_batch(asked: PipelineSpec, distribution: Distribution, replicas: int | None) -> int:
    """Returns the batch of a replica with which the global batch stays the same.

    Raises:
      ConfigurationError: The global batch does not divide, or the replicas are unknown.
    """
    batch = asked.trainer.parameters.per_replica_batch_size
    if replicas is None:
        raise ConfigurationError(
            f"strategy: the machine decides on the replicas of {distribution.strategy!r}, so the global batch cannot be "
            "divided among them; write --scaling weak"
        )
    if batch % replicas:
        raise ConfigurationError(
            f"per_replica_batch_size: with --scaling strong it is the global batch, and {batch} does not divide among "
            f"{replicas} replicas; write {replicas * max(1, round(batch / replicas))}, or --scaling weak"
        )
    return batch // replicas


def _without_arguments(message: str) -> str:
    """Returns the first line of a message of `loader.override`, without `-p ...: `."""
    line = message.splitlines()[0]
    if line.startswith(("-p ", "with -p ")):
        return line.partition(": ")[2] or line
    return line


def group_by_data(combinations: Sequence[Combination]) -> list[tuple[PipelineSpec, list[Combination]]]:
    """Groups combinations that train on the same data.

    Args:
      combinations: Combinations; those that cannot be trained are left out.

    Returns:
      For each group, the pipeline that prepares its data, and the combinations. If the
      pipeline sets no number of shards, there are as many as divide evenly among the
      processes of every combination.
    """
    groups: dict[tuple[int, str], list[Combination]] = {}
    for combination in combinations:
        if combination.spec:
            key = (combination.spec.shards.num_shards, combination.spec.trainer.base_model)
            groups.setdefault(key, []).append(combination)
    return [(_prepares_data([each.spec for each in group if each.spec]), group) for group in groups.values()]


def _prepares_data(specs: Sequence[PipelineSpec]) -> PipelineSpec:
    readers = {strategy_table.reading_processes(spec.trainer.parameters.distribution) for spec in specs}
    common = math.lcm(*readers)
    # Only the Sharder sees this number, so it need not go with the strategy.
    parameters = specs[0].trainer.parameters.model_copy(
        update={"num_workers": common if common <= MAX_READERS else max(readers)}
    )
    return specs[0].model_copy(update={"trainer": specs[0].trainer.model_copy(update={"parameters": parameters})})

"""Compares trainings: makes a pipeline of each combination of values, and measures it.

Imports no TensorFlow: what cannot be trained is known before anything runs.
"""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tfx_distribute.components.launchers.local import gpus as gpus_lib
from tfx_distribute.components.spec_model import Scalar
from tfx_distribute.pipelines.spec import loader, user_module
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, SECTION_PARAMETERS, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job import shard_plan, strategy_table
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, tasks_of
from tfx_distribute.trainer_module.job.time_use import WAIT, ProcessTime, TimeUse, summarize
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.reporting.progress import Progress

# Commas are part of these values. Several of them are written as several `-p`.
NOT_SPLIT = frozenset({"base_model", "class_weight", "layout_rules", "tpu"})
# An epoch is this part of the steps. The first one is the warm-up, and the last one has
# the loss.
EPOCHS = 20
# Parameters that make a training larger.
SIZE_PARAMETERS = ("num_workers", "accelerator_count", "num_parameter_servers", "mesh")
LENGTHS = ("train_steps", "epochs", "steps_per_epoch")
# A measured training does nothing but train.
MEASURED_TRAINING: Mapping[str, Scalar] = {
    "validation_freq": EPOCHS + 1,
    "eval_steps": 0,
    "export_best": "",
    "export_mode": "",
    "save_checkpoints_steps": 0,
    "profile_steps": "",
    "max_restarts": 0,
}
# What a training step consists of. Others, such as tracing, are not part of its speed.
STEP_ACTIVITIES = ("input", "compute", WAIT)

Grid = Mapping[str, tuple[Scalar, ...]]


@dataclass(frozen=True)
class Measurement:
    """A measured training, without its first epoch, the warm-up.

    Attributes:
      batch: Examples per training step, over all processes.
      seconds: Time of the training steps.
      examples_per_second: Speed over all processes.
      input_share: Part of a step in which it waits for examples, from 0 to 1; None if
        unknown.
      wait_share: Part of a step in which a process waits for the others; None if
        unknown, or if there are none.
      loss: Mean training loss of the last epoch; None if unknown.
      slowest: One line about the process that holds the others back; empty if none.
    """

    batch: int
    seconds: float
    examples_per_second: float
    input_share: float | None = None
    wait_share: float | None = None
    loss: float | None = None
    slowest: str = ""


@dataclass(frozen=True)
class Combination:
    """Values of parameters to train with, and the result.

    Attributes:
      values: Name -> value, as asked.
      spec: The pipeline with these values, cut down to a measured training; as in its
        file if that cannot be trained.
      status: `measured`, `failed`, `skipped` if it cannot be trained, or `not run`.
      reason: Why it failed or was skipped.
      processes: Training processes, those of parameter servers included.
      devices: Devices that train, over all processes; 0 if the machine decides.
    """

    values: Mapping[str, Scalar]
    spec: PipelineSpec
    status: Literal["measured", "failed", "skipped", "not run"] = "not run"
    reason: str = ""
    processes: int = 0
    devices: int = 0
    measurement: Measurement | None = None

    @property
    def label(self) -> str:
        """Its values on one line."""
        return describe(self.values) or "the training"

    @property
    def speed(self) -> float:
        """Examples per second and device; 0 if unknown."""
        return self.measurement.examples_per_second / self.devices if self.measurement and self.devices else 0.0


def parse(arguments: Iterable[str]) -> Grid:
    """Reads `name=value,value` arguments. A name that is repeated gets more values.

    A comma in a parameter of `NOT_SPLIT` is part of its value.
    """
    grid: dict[str, tuple[Scalar, ...]] = {}
    for argument in arguments:
        name, _, text = argument.partition("=")
        texts = [argument]  # one value, or no `=`, which is refused as it is written
        if "," in text and name not in NOT_SPLIT:
            texts = [f"{name}={value.strip()}" for value in text.split(",")]
        for one in texts:
            grid[name] = grid.get(name, ()) + tuple(loader.parse_parameters([one]).values())
    return grid


def make(spec: PipelineSpec, grid: Grid, train_steps: int, gpus: Sequence[str] = ()) -> list[Combination]:
    """Makes all combinations of a grid; those that cannot be trained are `skipped`.

    A value of which no combination can be trained, or that cannot be compared, raises a
    ConfigurationError.
    """
    for name, values in grid.items():
        if name in LENGTHS:
            raise ConfigurationError(f"-p {name}: all combinations train for the same steps; write --train-steps instead")
        if name in MEASURED_TRAINING:
            fixed = describe({name: MEASURED_TRAINING[name]})
            raise ConfigurationError(f"-p {name}: a comparison only trains, with {fixed}; leave it out")
        if name in ("base_model", *SECTION_PARAMETERS) and len(values) > 1:
            raise ConfigurationError(f"-p {name}: all combinations train on the same data and base model; write one value")
    combinations = [
        _make(spec, dict(zip(grid, values, strict=True)), train_steps, gpus) for values in itertools.product(*grid.values())
    ]
    for name, value in [(name, value) for name, values in grid.items() for value in values]:
        problems = [each.reason for each in combinations if each.values[name] is value]
        if all(problems):
            raise ConfigurationError(f"-p {describe({name: value})}: {problems[0]}")
    if not grid and combinations[0].reason:
        raise ConfigurationError(combinations[0].reason)
    return _sharing_shards(combinations)


def _sharing_shards(combinations: list[Combination]) -> list[Combination]:
    """Returns combinations that read the same shards, in whole files each."""
    readers = {
        strategy_table.reading_processes(each.spec.trainer.parameters.distribution)
        for each in combinations
        if not each.reason
    }
    if len(readers) == 1 or combinations[0].spec.shards.num_shards:
        return combinations
    multiple = math.lcm(*readers)
    num_shards = multiple * math.ceil(shard_plan.MIN_SHARDS / multiple)
    return [replace(each, spec=each.spec.with_parameters({"num_shards": num_shards})) for each in combinations]


def _make(spec: PipelineSpec, values: Mapping[str, Scalar], train_steps: int, gpus: Sequence[str]) -> Combination:
    lengths = {"train_steps": train_steps, "epochs": 0, "steps_per_epoch": math.ceil(train_steps / EPOCHS)}
    try:
        asked = loader.override(spec, values)
        if user_module.find(asked).train == "run_fn":
            raise ConfigurationError("module: a run_fn trains by itself, so its steps cannot be measured; write build_model")
        if asked.trainer.base_model.path == LATEST_BLESSED:
            raise ConfigurationError(
                "base_model: the runs of a comparison have a folder of their own, without a blessed model; write its path: "
                "-p base_model=runs/NAME/serving"
            )
        # The evaluation is left out last: `latest_blessed` needs its thresholds.
        measured = asked.with_parameters({**MEASURED_TRAINING, **lengths})
        measured = measured.model_copy(update={"tune": None, "evaluate": None, "push": None})
        distribution = measured.trainer.parameters.distribution
        strategy_table.check_all_reduce(distribution, "this machine")
        processes, devices = len(tasks_of(distribution)), _count_devices(distribution, gpus)
        return Combination(values, measured, processes=processes, devices=devices)
    except ConfigurationError as error:
        # The first problem, without the arguments, which the label has.
        return Combination(values, spec, "skipped", re.sub(r"^(with )?-p .*?: ", "", str(error).splitlines()[0]))


def _count_devices(distribution: Distribution, gpus: Sequence[str]) -> int:
    """Returns the devices that train here, 0 if unknown; raises if GPUs are too few."""
    trainers = strategy_table.reading_processes(distribution)
    gpus_lib.assign(distribution, 0, trainers, list(gpus))
    devices = strategy_table.devices_per_process(distribution)
    if devices is None and distribution.strategy != "tpu":
        devices = max(1, len(gpus))
    return (devices or 0) * trainers


def efficiencies(combinations: Sequence[Combination]) -> list[float | None]:
    """Returns the speed per device of each, as a part of that of its smallest peer.

    Peers are trainings that differ in their size alone.
    """
    bases: dict[str, float] = {}
    for each in sorted(combinations, key=lambda each: each.devices):
        if each.speed:
            bases.setdefault(_series(each), each.speed)
    return [each.speed / bases[_series(each)] if each.speed else None for each in combinations]


def _series(combination: Combination) -> str:
    """Returns a key that trainings share if they differ in their size alone."""
    return repr({name: value for name, value in combination.values.items() if name not in SIZE_PARAMETERS})


def measure(records: Sequence[Progress]) -> Measurement:
    """Measures a training by its history, in order of time."""
    chief = CHIEF_TASK.file_name
    epochs = [record for record in records if record.task == chief and record.phase == "epoch"]
    if len(epochs) < 2:
        raise TrainingError(f"it ended after {epochs[-1].step if epochs else 0} training steps, too few to measure")
    warmup, last = epochs[0], epochs[-1]
    time_use = _measure_time(records, warmup.time, last.time)
    seconds = next((each.total for each in time_use.processes if each.task == chief), last.time - warmup.time)
    waits = len(time_use.processes) > 1 and any(WAIT in each.seconds for each in time_use.processes)
    return Measurement(
        batch=last.global_batch_size,
        seconds=seconds,
        examples_per_second=(last.step - warmup.step) * last.global_batch_size / seconds,
        input_share=time_use.share("input") if time_use.processes else None,
        wait_share=time_use.share(WAIT) if waits else None,
        loss=last.metrics.get("loss"),
        slowest=time_use.describe(),
    )


def _measure_time(records: Sequence[Progress], start: float, end: float) -> TimeUse:
    """Returns how the processes spent their time in training steps."""
    processes = []
    for task in sorted({record.task for record in records}):
        timed = [record for record in records if record.task == task and record.seconds and record.time <= end]
        before = next((record for record in reversed(timed) if record.time <= start), None)
        if before:
            seconds = {name: timed[-1].seconds[name] for name in STEP_ACTIVITIES if name in timed[-1].seconds}
            processes.append(ProcessTime(task, seconds, timed[-1].counters).since(before.seconds, before.counters))
    return summarize(processes)


def format_value(value: Scalar) -> str:
    """Formats a value as it is written in a pipeline file."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe(values: Mapping[str, Scalar]) -> str:
    """Formats values on one line, such as `strategy=mirrored num_workers=1`."""
    return " ".join(f"{name}={format_value(value)}" for name, value in values.items())

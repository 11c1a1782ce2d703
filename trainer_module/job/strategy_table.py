"""Chooses a strategy, and checks which options go together."""

import math
import re
from collections.abc import Collection
from dataclasses import fields, replace

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import labels, layout_rules
from tfx_distribute.trainer_module.job.parameters import check_values
from tfx_distribute.trainer_module.job.strategy_info import AUTO, REDUCTION_SERVER, STRATEGIES, StrategyInfo
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, InputOptions, TrainingOptions


def choose(distribution: Distribution) -> tuple[str, str]:
    """Chooses the strategy for `auto` from the workers and devices, and says why."""
    workers, devices = distribution.num_workers, distribution.accelerator_count
    if distribution.num_parameter_servers:
        return "parameter_server", f"{distribution.num_parameter_servers} parameter servers"
    if distribution.mesh or distribution.layout_rules:
        return "model_parallel", "a mesh or layout rules"
    if workers > 1:
        return "multi_worker_mirrored", f"{workers} workers"
    if devices > 1:
        return "mirrored", f"{devices} devices in one process"
    if devices == 0 and distribution.accelerator_type != "cpu":
        return "mirrored", "all devices of one process, however many"
    return "one_device", "one device"


def resolve(distribution: Distribution) -> Distribution:
    """Returns a distribution with the name of a strategy in place of `auto`.

    This happens where parameters enter: a pipeline file's, and the Trainer's. All other
    functions expect the name of a strategy.
    """
    if distribution.strategy != AUTO:
        return distribution
    return replace(distribution, strategy=choose(distribution)[0])


def readers(distribution: Distribution) -> int:
    """Returns the number of training processes that read examples in step.

    Each reads for its own replicas. Workers of parameter servers do not count: they
    train asynchronously.
    """
    row = distribution.info
    return distribution.num_workers if row.multi_worker and not row.parameter_servers else 1


def reading_processes(distribution: Distribution) -> int:
    """Returns the number of training processes that read examples, in step or not."""
    return distribution.num_workers if distribution.info.multi_worker else 1


def num_parameter_servers(distribution: Distribution) -> int:
    """Returns the number of parameter servers; at least 1 if the strategy needs any."""
    return max(1, distribution.num_parameter_servers) if distribution.info.parameter_servers else 0


def devices_per_process(distribution: Distribution) -> int | None:
    """Returns the devices of each training process; None if the machine decides."""
    if not distribution.info.all_devices:
        return 1
    if distribution.mesh:
        return math.prod(layout_rules.parse_mesh(distribution.mesh))
    if count := distribution.accelerator_count:
        return count
    return 1 if distribution.accelerator_type == "cpu" else None


def check(
    distribution: Distribution,
    training_options: TrainingOptions,
    input_options: InputOptions,
    fault_tolerance: FaultTolerance,
) -> None:
    """Checks that the parameters of a training go together."""
    row = distribution.info
    for group in (distribution, training_options, input_options, fault_tolerance):
        check_values(group)
    _check_processes(distribution, row)
    _check_devices(distribution, row)
    _check_mesh(distribution, row)
    _check_training_options(distribution, row, training_options)


def check_run_fn(distribution: Distribution) -> None:
    """Checks that a module with its own `run_fn` can train with a distribution."""
    row = distribution.info
    if not row.run_fn:
        raise ConfigurationError(f"strategy: a run_fn cannot train under {row.name!r} ({row.summary}); write build_model")


# Settings that reach a run_fn in its fn_args, or that concern the processes around it.
_REACH_RUN_FN = ("train_steps", "eval_steps", "keras_version", "heartbeat_timeout_secs", "max_restarts")


def find_ignored(
    function: str,
    options: TrainingOptions,
    input_options: InputOptions,
    fault_tolerance: FaultTolerance,
    arguments: Collection[str],
) -> dict[str, str]:
    """Returns the settings that the module's function would ignore, and why.

    A `run_fn` reads data, builds and fits the model itself, so most settings do not
    reach it. A parameter with its default value does not count as set. `arguments`
    names the Trainer's other arguments that have a value.
    """
    if function == "build_model":
        reasons = {
            "custom_config": "is for a run_fn; write hparams, for context.hparams of build_model",
            "statistics": "are for a run_fn, which finds them in fn_args.num_examples; leave them out",
        }
        return {name: reason for name, reason in reasons.items() if name in arguments}
    reasons = {
        field.name: "a run_fn decides on it by itself; leave it out"
        for group in (options, input_options, fault_tolerance)
        for field in fields(group)
        if field.name not in _REACH_RUN_FN and getattr(group, field.name) != field.default
    }
    if "hparams" in arguments:
        reasons["hparams"] = "are for build_model; write custom_config, for fn_args.custom_config"
    if "warm_start" in arguments:
        reasons["base_model"] = "a run_fn takes weights from fn_args.base_model by itself; write nothing but its path"
    return reasons


def check_all_reduce(distribution: Distribution, where: str) -> None:
    """Checks that reduction servers, which only Vertex AI has, are not asked for."""
    if distribution.all_reduce == REDUCTION_SERVER:
        raise ConfigurationError(f"all_reduce: reduction_server is Vertex AI's, and {where} has none; write all_reduce=nccl")


# Parameters that only some strategies take -> what the others do.
_WITHOUT = {
    "num_workers": "trains in one process",
    "num_parameter_servers": "has no parameter servers",
    "partition_min_bytes": "has no parameter servers",
    "mesh": "does not split a model",
    "layout_rules": "does not split a model",
    "tpu": "uses no TPU",
}


def _check_processes(distribution: Distribution, row: StrategyInfo) -> None:
    for name, without in _WITHOUT.items():
        value = getattr(distribution, name)
        if name not in row.takes and value != getattr(Distribution, name):
            takers = " or ".join(other.name for other in STRATEGIES.values() if name in other.takes)
            raise ConfigurationError(
                f"{name}: strategy {row.name!r} {without}, but {name} is {value}; leave it out, or write strategy={takers}"
            )


def _check_devices(distribution: Distribution, row: StrategyInfo) -> None:
    strategy, count = row.name, distribution.accelerator_count
    if distribution.all_reduce not in ("auto", *row.all_reduce):
        raise ConfigurationError(
            f"all_reduce: strategy {strategy!r} does not support {distribution.all_reduce!r}; choose one of "
            f"{', '.join(('auto', *row.all_reduce))}"
        )
    if distribution.accelerator_type not in row.accelerators:
        raise ConfigurationError(
            f"accelerator_type: strategy {strategy!r} does not train on {distribution.accelerator_type!r}; "
            f"write accelerator_type={row.accelerators[0]}"
        )
    on_cpu = distribution.accelerator_type == "cpu"
    if distribution.all_reduce in ("nccl", REDUCTION_SERVER) and on_cpu:
        raise ConfigurationError(
            f"all_reduce: {distribution.all_reduce} moves data between GPUs, but accelerator_type is 'cpu'; "
            "write all_reduce=auto or accelerator_type=gpu"
        )
    if distribution.all_reduce == REDUCTION_SERVER and distribution.num_workers == 1:
        raise ConfigurationError(
            "all_reduce: reduction_server sums between machines, and num_workers is 1; write all_reduce=auto"
        )
    if count > 1 and not row.all_devices:
        raise ConfigurationError(
            f"accelerator_count: strategy {strategy!r} trains on one device of a process, but accelerator_count is "
            f"{count}; write accelerator_count=1, or strategy=mirrored"
        )
    if count > 1 and on_cpu and row.multi_worker:
        raise ConfigurationError(
            f"accelerator_count: strategy {strategy!r} uses one CPU device per process, but accelerator_count is "
            f"{count}; write accelerator_count=1 and more workers"
        )
    if count and strategy == "tpu":
        raise ConfigurationError(
            f"accelerator_count: a TPU is used whole, but accelerator_count is {count}; write accelerator_count=0"
        )


def _check_mesh(distribution: Distribution, row: StrategyInfo) -> None:
    if row.name != "model_parallel":
        return
    layout_rules.parse_rules(distribution.layout_rules)
    if distribution.mesh:
        batch, model = layout_rules.parse_mesh(distribution.mesh)
        count = distribution.accelerator_count
        if count and count != batch * model:
            raise ConfigurationError(
                f"mesh: {distribution.mesh} is {batch * model} devices, but accelerator_count is {count}; "
                f"write accelerator_count={batch * model}, or a mesh of {count}, such as mesh=1x{count}"
            )


def _check_training_options(distribution: Distribution, row: StrategyInfo, options: TrainingOptions) -> None:
    if options.precision == "mixed_float16" and distribution.accelerator_type == "cpu":
        raise ConfigurationError(
            "precision: mixed_float16 needs a GPU, but accelerator_type is 'cpu'; write precision=mixed_bfloat16"
        )
    for name, why in row.refuses.items():
        value, default = getattr(options, name), getattr(TrainingOptions, name)
        if value not in (default, "mixed_bfloat16"):
            fix = f"{name}={str(default).lower()}, or another strategy"
            raise ConfigurationError(f"{name}: strategy {row.name!r} does not go with {value}: {why}; write {fix}")
    if options.train_steps and options.epochs:
        raise ConfigurationError(
            f"epochs: train_steps={options.train_steps} and epochs={options.epochs} both say how long to train; "
            "write one of them"
        )
    if options.steps_per_epoch and options.epochs:
        raise ConfigurationError(
            f"steps_per_epoch: with epochs={options.epochs}, an epoch is one pass over the examples; write train_steps "
            "instead of epochs, or leave steps_per_epoch out"
        )
    if options.export_mode and not options.export_best:
        raise ConfigurationError("export_mode: goes with export_best, which is empty; write the name of a metric there")
    if options.export_best and not options.export_mode and not options.export_best.endswith("loss"):
        raise ConfigurationError(
            "export_mode: is missing; write min or max, for whether small or large values of "
            f"{options.export_best} are better"
        )
    profile_window(options)
    labels.parse_class_weight(options.class_weight)


def profile_window(options: TrainingOptions) -> tuple[int, int] | None:
    """Returns the first and last training step to profile, from 1; None for none."""
    if not options.profile_steps:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", options.profile_steps)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigurationError(
            f"profile_steps: {options.profile_steps!r} is not a window of training steps; write first and last, e.g. 100,120"
        )
    first, last = int(match[1]), int(match[2])
    if options.train_steps and first > options.train_steps:
        raise ConfigurationError(
            f"profile_steps: {options.profile_steps!r} is after the last of {options.train_steps} training steps"
        )
    return first, last


def learning_rate_factor(scaling: str, num_batches: int) -> float:
    """Returns the factor for the learning rate.

    `scaling` is a value of `learning_rate_scaling`. `num_batches` are those of a
    training step: replicas in step times `gradient_accumulation_steps`.
    """
    return {"none": 1.0, "linear": float(num_batches), "sqrt": math.sqrt(num_batches)}[scaling]

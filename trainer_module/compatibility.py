"""What each strategy is, and what goes with what. Plain data: importing this imports no TensorFlow.

A new strategy is built in `trainer_module.strategy` and gets `built=True` here; nothing else lists strategies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import Distribution, Schedule


@dataclass(frozen=True)
class Strategy:
    """One row of the table of strategies.

    Attributes:
      name: Value of the pipeline parameter `strategy`.
      summary: One line for help texts and documents.
      multi_worker: Whether it spans several training processes.
      parameter_servers: Whether it needs parameter servers.
      all_devices: Whether it uses all devices of a process, or one.
      all_reduce: Values of the pipeline parameter `all_reduce` that it understands, beside `auto`.
      built: Whether this version can run it.
    """

    name: str
    summary: str
    multi_worker: bool = False
    parameter_servers: bool = False
    all_devices: bool = True
    all_reduce: tuple[str, ...] = ()
    built: bool = True


STRATEGIES: dict[str, Strategy] = {
    row.name: row
    for row in (
        Strategy("default", "no distribution: one process, one device", all_devices=False),
        Strategy("one_device", "tf.distribute.OneDeviceStrategy: one process, one named device", all_devices=False),
        Strategy(
            "mirrored",
            "tf.distribute.MirroredStrategy: one process, a replica on each of its devices",
            all_reduce=("nccl", "hierarchical_copy", "reduction_to_one_device"),
        ),
        Strategy(
            "multi_worker_mirrored",
            "tf.distribute.MultiWorkerMirroredStrategy: several processes in step, a replica on each of their devices",
            multi_worker=True,
            all_reduce=("ring", "nccl"),
        ),
        Strategy(
            "parameter_server",
            "tf.distribute.ParameterServerStrategy: asynchronous, variables on parameter servers",
            multi_worker=True,
            parameter_servers=True,
            built=False,
        ),
        Strategy(
            "central_storage",
            "tf.distribute.experimental.CentralStorageStrategy: one process, variables on its CPU, a replica on each device",
        ),
        Strategy("tpu", "tf.distribute.TPUStrategy: a TPU slice", multi_worker=True, built=False),
        Strategy("model_parallel", "DTensor: the model split over a mesh of devices", built=False),
    )
}

AUTO = "auto"  # chosen from the workers and devices that are asked for; see `resolve`
BUILT = (*(name for name, row in STRATEGIES.items() if row.built), AUTO)

# `auto` leaves the choice to TensorFlow.
ALL_REDUCE: tuple[str, ...] = ("auto", "ring", "nccl", "hierarchical_copy", "reduction_to_one_device")

# `auto` takes the GPUs that the process sees, or else its CPU.
ACCELERATORS: tuple[str, ...] = ("auto", "cpu", "gpu")

# Names of Keras mixed-precision policies.
PRECISIONS: tuple[str, ...] = ("float32", "mixed_float16", "mixed_bfloat16")

# What the replicas do to the learning rate: nothing, times their number, times its square root.
LEARNING_RATE_SCALINGS: tuple[str, ...] = ("none", "linear", "sqrt")


def strategy_named(name: str) -> Strategy:
    """Returns the row of the strategy called `name`.

    Raises:
      ConfigurationError: There is no such strategy, or this version cannot run it yet.
    """
    row = STRATEGIES.get(name)
    if row is None:
        raise ConfigurationError(f"strategy: there is no strategy {name!r}; choose one of {', '.join(BUILT)}")
    if not row.built:
        raise ConfigurationError(
            f"strategy: {name!r} ({row.summary}) is not built in this version; choose one of {', '.join(BUILT)}"
        )
    return row


def resolve(distribution: Distribution) -> tuple[Distribution, str]:
    """Chooses the strategy where that is left open.

    Returns:
      The distribution with the name of a strategy in place of `auto`, and why it is that one; the reason is empty where
      nothing was chosen.
    """
    if distribution.strategy != AUTO:
        return distribution, ""
    workers, devices = distribution.num_workers, distribution.accelerator_count
    if workers > 1:
        chosen, reason = "multi_worker_mirrored", f"{workers} workers"
    elif devices > 1:
        chosen, reason = "mirrored", f"{devices} devices in one process"
    elif devices == 0 and distribution.accelerator_type != "cpu":
        chosen, reason = "mirrored", "all devices of one process, however many"
    else:
        chosen, reason = "one_device", "one device"
    return replace(distribution, strategy=chosen), reason


def check(distribution: Distribution, schedule: Schedule) -> None:
    """Refuses combinations that cannot train, each with the reason and what to write instead.

    Raises:
      ConfigurationError: With a message that begins with the parameter's name.
    """
    distribution, _ = resolve(distribution)
    row = strategy_named(distribution.strategy)
    strategy, num_workers = distribution.strategy, distribution.num_workers
    for name, value, least in (
        ("num_workers", num_workers, 1),
        ("num_parameter_servers", distribution.num_parameter_servers, 0),
        ("accelerator_count", distribution.accelerator_count, 0),
        ("per_replica_batch_size", schedule.per_replica_batch_size, 1),
        ("train_steps", schedule.train_steps, 0),
        ("epochs", schedule.epochs, 0),
        ("eval_steps", schedule.eval_steps, 0),
        ("warmup_steps", schedule.warmup_steps, 0),
    ):
        if value < least:
            raise ConfigurationError(f"{name}: {value} is too small; write {least} or more")
    _one_of("accelerator_type", distribution.accelerator_type, ACCELERATORS)
    _one_of("all_reduce", distribution.all_reduce, ALL_REDUCE)
    _one_of("precision", schedule.precision, PRECISIONS)
    _one_of("learning_rate_scaling", schedule.learning_rate_scaling, LEARNING_RATE_SCALINGS)
    if num_workers > 1 and not row.multi_worker:
        wider = [name for name, other in STRATEGIES.items() if other.built and other.multi_worker]
        raise ConfigurationError(
            f"num_workers: strategy {strategy!r} trains in one process, but num_workers is {num_workers}; "
            f"write num_workers=1, or strategy={' or '.join(wider)}"
        )
    if distribution.num_parameter_servers and not row.parameter_servers:
        raise ConfigurationError(
            f"num_parameter_servers: strategy {strategy!r} has no parameter servers, "
            f"but num_parameter_servers is {distribution.num_parameter_servers}; write num_parameter_servers=0"
        )
    if distribution.all_reduce not in ("auto", *row.all_reduce):
        raise ConfigurationError(
            f"all_reduce: strategy {strategy!r} does not know {distribution.all_reduce!r}; choose one of "
            f"{', '.join(('auto', *row.all_reduce))}"
        )
    on_cpu = distribution.accelerator_type == "cpu"
    if distribution.all_reduce == "nccl" and on_cpu:
        raise ConfigurationError(
            "all_reduce: nccl moves data between GPUs, but accelerator_type is 'cpu'; "
            "write all_reduce=auto or accelerator_type=gpu"
        )
    if schedule.precision == "mixed_float16" and on_cpu:
        raise ConfigurationError(
            "precision: mixed_float16 needs a GPU, but accelerator_type is 'cpu'; write precision=mixed_bfloat16"
        )
    if distribution.accelerator_count > 1 and not row.all_devices:
        raise ConfigurationError(
            f"accelerator_count: strategy {strategy!r} trains on one device, but accelerator_count is "
            f"{distribution.accelerator_count}; write accelerator_count=1, or strategy=mirrored"
        )
    if distribution.accelerator_count > 1 and on_cpu and row.multi_worker:
        raise ConfigurationError(
            f"accelerator_count: strategy {strategy!r} uses one CPU device per process, but accelerator_count is "
            f"{distribution.accelerator_count}; write accelerator_count=1 and more workers"
        )
    if schedule.train_steps and schedule.epochs:
        raise ConfigurationError(
            f"epochs: train_steps={schedule.train_steps} and epochs={schedule.epochs} both say how long to train; "
            "write one of them"
        )


def learning_rate_factor(scaling: str, num_replicas: int) -> float:
    """What a learning rate is multiplied by.

    Args:
      scaling: One of `LEARNING_RATE_SCALINGS`.
      num_replicas: Replicas that train in step.
    """
    return {"none": 1.0, "linear": float(num_replicas), "sqrt": math.sqrt(num_replicas)}[scaling]


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigurationError(f"{name}: {value!r} is not known; choose one of {', '.join(allowed)}")

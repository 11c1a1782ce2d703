"""What each strategy is, and what goes with what. Plain data: importing this imports no TensorFlow.

A new strategy is built in `trainer_module.strategy` and gets a row here; nothing else lists strategies.
"""

import math
import re
from dataclasses import dataclass, replace

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layout_rules
from tfx_distribute.trainer_module.job.declaration import check_values
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, InputOptions, TrainingOptions


@dataclass(frozen=True)
class StrategyInfo:
    """One row of the table of strategies.

    Both ways of training, a compiled Keras model and a task with steps of its own, go with every row: they share a loop. So
    does any number of shards: where they do not divide among the processes, these share them by records.

    Attributes:
      name: Value of the pipeline parameter `strategy`.
      summary: One line for help texts and documents.
      multi_worker: Whether it spans several training processes.
      parameter_servers: Whether it needs parameter servers and a coordinator, and trains asynchronously.
      all_devices: Whether it uses all devices of a process, or one.
      named_devices: Whether its devices can be chosen by name.
      all_reduce: Values of the pipeline parameter `all_reduce` that it understands, beside `auto`.
      accelerators: Values of `accelerator_type` that it understands.
      not_keras_3: Why it cannot train a Keras 3 model; empty where it can.
      not_jit_compile: Why XLA cannot compile its steps; empty where it can.
      not_accumulated: Why it cannot sum the gradients of several batches; empty where it can.
      not_float16: Why it cannot train in `mixed_float16`; empty where it can.
      fixed_batches: Why all its batches have the same size; empty where they need not.
      run_fn: Whether a module that trains by itself can take it.
    """

    name: str
    summary: str
    multi_worker: bool = False
    parameter_servers: bool = False
    all_devices: bool = True
    named_devices: bool = False
    all_reduce: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ("auto", "cpu", "gpu")
    not_keras_3: str = ""
    not_jit_compile: str = ""
    not_accumulated: str = ""
    not_float16: str = ""
    fixed_batches: str = ""
    run_fn: bool = True


# NCCL with machines of Vertex AI's that do nothing but sum.
REDUCTION_SERVER = "reduction_server"

STRATEGIES: dict[str, StrategyInfo] = {
    row.name: row
    for row in (
        StrategyInfo("default", "no distribution: one process, one device", all_devices=False),
        StrategyInfo(
            "one_device",
            "tf.distribute.OneDeviceStrategy: one process, one device",
            all_devices=False,
            named_devices=True,
        ),
        StrategyInfo(
            "mirrored",
            "tf.distribute.MirroredStrategy: one process, a replica on each of its devices",
            named_devices=True,
            all_reduce=("nccl", "hierarchical_copy", "reduction_to_one_device"),
        ),
        StrategyInfo(
            "multi_worker_mirrored",
            "tf.distribute.MultiWorkerMirroredStrategy: several processes in step, a replica on each of their devices",
            multi_worker=True,
            all_reduce=("ring", "nccl", REDUCTION_SERVER),
        ),
        StrategyInfo(
            "parameter_server",
            "tf.distribute.ParameterServerStrategy: asynchronous workers, variables on parameter servers, a coordinator",
            multi_worker=True,
            parameter_servers=True,
            all_devices=False,
            not_keras_3="its optimizers lose steps on parameter servers",
            not_jit_compile="XLA cannot read variables of another process",
            not_accumulated="a worker applies the gradients of each batch by itself",
            not_float16="Keras scales no losses there",
        ),
        StrategyInfo(
            "central_storage",
            "tf.distribute.experimental.CentralStorageStrategy: one process, variables on its CPU, a replica on each device",
            named_devices=True,
            not_keras_3="its metrics are wrong there, without a word",
            not_jit_compile="XLA cannot read variables of another device",
            not_float16="Keras scales no losses there",
        ),
        StrategyInfo(
            "tpu",
            "tf.distribute.TPUStrategy: one process, all cores of a TPU",
            accelerators=("auto",),
            not_keras_3="it was not tried there",
            not_float16="a TPU computes in bfloat16",
            fixed_batches="a TPU's program is compiled for one",
        ),
        StrategyInfo(
            "model_parallel",
            "DTensor: one process, the model split over a mesh of devices",
            not_keras_3="Keras 3 knows no DTensor",
            not_jit_compile="DTensor places each operation by itself",
            not_accumulated="DTensor's loops do not carry gradients",
            not_float16="Keras scales no losses there",
            fixed_batches="a batch is divided evenly along the mesh",
            run_fn=False,
        ),
    )
}

AUTO = "auto"  # chosen from the workers and devices that are asked for; see `resolve`
NAMES = (*STRATEGIES, AUTO)


def strategy_named(name: str) -> StrategyInfo:
    """Returns the row of the strategy called `name`.

    Raises:
      ConfigurationError: There is no such strategy.
    """
    row = STRATEGIES.get(name)
    if row is None:
        raise ConfigurationError(f"strategy: there is no strategy {name!r}; choose one of {', '.join(NAMES)}")
    return row


def resolve(distribution: Distribution) -> tuple[Distribution, str]:
    """Chooses the strategy where that is left open.

    Returns:
      The distribution with the name of a strategy in place of `auto`, and why it is that one; the reason is empty where
      nothing was chosen.
    """
    if distribution.strategy != AUTO:
        return distribution, ""
    workers, devices = distribution.num_workers, distribution.accelerator_count or len(device_names(distribution))
    if distribution.num_parameter_servers:
        chosen, reason = "parameter_server", f"{distribution.num_parameter_servers} parameter servers"
    elif distribution.mesh or distribution.layout_rules:
        chosen, reason = "model_parallel", "a mesh or layout rules"
    elif workers > 1:
        chosen, reason = "multi_worker_mirrored", f"{workers} workers"
    elif devices > 1:
        chosen, reason = "mirrored", f"{devices} devices in one process"
    elif devices == 0 and distribution.accelerator_type != "cpu":
        chosen, reason = "mirrored", "all devices of one process, however many"
    else:
        chosen, reason = "one_device", "one device"
    return replace(distribution, strategy=chosen), reason


def readers(distribution: Distribution) -> int:
    """Training processes that read examples in step, each for its own replicas."""
    row = strategy_named(distribution.strategy)
    return distribution.num_workers if row.multi_worker and not row.parameter_servers else 1


def reading_processes(distribution: Distribution) -> int:
    """Training processes that read examples, in step or not."""
    row = strategy_named(distribution.strategy)
    return distribution.num_workers if row.multi_worker else 1


def num_parameter_servers(distribution: Distribution) -> int:
    """Parameter servers: those that are asked for, or one where the strategy needs one."""
    row = strategy_named(distribution.strategy)
    return max(1, distribution.num_parameter_servers) if row.parameter_servers else 0


def device_names(distribution: Distribution) -> tuple[str, ...]:
    """The devices that are asked for by name."""
    return tuple(name.strip().upper() for name in distribution.devices.split(",") if name.strip())


def check(distribution: Distribution, schedule: TrainingOptions, reading: InputOptions, recovery: FaultTolerance) -> None:
    """Refuses combinations that cannot train, each with the reason and what to write instead.

    Raises:
      ConfigurationError: With a message that begins with the parameter's name.
    """
    distribution, _ = resolve(distribution)
    row = strategy_named(distribution.strategy)
    if schedule.keras_version not in (2, 3):
        raise ConfigurationError(f"keras_version: there is no Keras {schedule.keras_version} here; choose 2 or 3")
    for group in (distribution, schedule, reading, recovery):
        check_values(group)
    _check_processes(distribution, row)
    _check_devices(distribution, row)
    _check_mesh(distribution, row)
    _check_schedule(distribution, row, schedule)


def check_run_fn(distribution: Distribution) -> None:
    """Refuses what a module that trains by itself cannot take.

    Raises:
      ConfigurationError: With a message that begins with the parameter's name.
    """
    row = strategy_named(resolve(distribution)[0].strategy)
    if not row.run_fn:
        raise ConfigurationError(f"strategy: a run_fn cannot train under {row.name!r} ({row.summary}); write build_model")
    if distribution.num_evaluators:
        raise ConfigurationError("num_evaluators: a run_fn evaluates by itself; write num_evaluators=0")


def check_all_reduce(distribution: Distribution, where: str) -> None:
    """Refuses what only Vertex AI has.

    Args:
      distribution: How the work is spread.
      where: Where that is, for the message.

    Raises:
      ConfigurationError: With a message that begins with the parameter's name.
    """
    if distribution.all_reduce == REDUCTION_SERVER:
        raise ConfigurationError(f"all_reduce: reduction_server is Vertex AI's, and {where} has none; write all_reduce=nccl")


def _check_processes(distribution: Distribution, row: StrategyInfo) -> None:
    strategy, num_workers = row.name, distribution.num_workers
    if num_workers > 1 and not row.multi_worker:
        wider = [name for name, other in STRATEGIES.items() if other.multi_worker]
        raise ConfigurationError(
            f"num_workers: strategy {strategy!r} trains in one process, but num_workers is {num_workers}; "
            f"write num_workers=1, or strategy={' or '.join(wider)}"
        )
    if distribution.num_parameter_servers and not row.parameter_servers:
        raise ConfigurationError(
            f"num_parameter_servers: strategy {strategy!r} has no parameter servers, "
            f"but num_parameter_servers is {distribution.num_parameter_servers}; write num_parameter_servers=0"
        )
    if distribution.partition_min_bytes and not row.parameter_servers:
        raise ConfigurationError(
            f"partition_min_bytes: strategy {strategy!r} has no parameter servers to divide variables among; "
            "write partition_min_bytes=0"
        )
    if distribution.num_evaluators > 1:
        raise ConfigurationError(
            f"num_evaluators: {distribution.num_evaluators} evaluators would do the same work; write 1, or 0 for none"
        )
    if distribution.num_evaluators and not row.multi_worker:
        raise ConfigurationError(
            f"num_evaluators: strategy {strategy!r} trains in one process, which evaluates too; write num_evaluators=0"
        )


def _check_devices(distribution: Distribution, row: StrategyInfo) -> None:
    strategy, count = row.name, distribution.accelerator_count
    if distribution.all_reduce not in ("auto", *row.all_reduce):
        raise ConfigurationError(
            f"all_reduce: strategy {strategy!r} does not know {distribution.all_reduce!r}; choose one of "
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
    if distribution.tpu != Distribution.tpu and strategy != "tpu":
        raise ConfigurationError(f"tpu: strategy {strategy!r} uses no TPU; write strategy=tpu, or leave tpu out")
    names = device_names(distribution)
    if not names:
        return
    if not row.named_devices:
        able = [name for name, other in STRATEGIES.items() if other.named_devices]
        raise ConfigurationError(
            f"devices: strategy {strategy!r} chooses its devices by itself; leave devices out, or write "
            f"strategy={' or '.join(able)}"
        )
    wrong = [name for name in names if not re.fullmatch(r"(CPU|GPU):\d+", name)]
    if wrong or len(set(names)) < len(names) or len({name[:3] for name in names}) > 1:
        raise ConfigurationError(
            f"devices: {distribution.devices!r} does not name devices of one kind, each once; write it like GPU:0,GPU:2"
        )
    if len(names) > 1 and not row.all_devices:
        raise ConfigurationError(
            f"devices: strategy {strategy!r} trains on one device, but {len(names)} are named; write one, or "
            "strategy=mirrored"
        )
    if count:
        raise ConfigurationError(
            f"devices: devices={distribution.devices} and accelerator_count={count} both say what to train on; write one"
        )
    if distribution.accelerator_type not in ("auto", names[0][:3].lower()):
        raise ConfigurationError(
            f"devices: {distribution.devices} are named, but accelerator_type is {distribution.accelerator_type!r}; "
            "write accelerator_type=auto"
        )


def _check_mesh(distribution: Distribution, row: StrategyInfo) -> None:
    if row.name != "model_parallel":
        for name, value in (("mesh", distribution.mesh), ("layout_rules", distribution.layout_rules)):
            if value:
                raise ConfigurationError(
                    f"{name}: strategy {row.name!r} does not split a model; leave {name} out, or write "
                    "strategy=model_parallel"
                )
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


def _check_schedule(distribution: Distribution, row: StrategyInfo, schedule: TrainingOptions) -> None:
    if schedule.precision == "mixed_float16" and distribution.accelerator_type == "cpu":
        raise ConfigurationError(
            "precision: mixed_float16 needs a GPU, but accelerator_type is 'cpu'; write precision=mixed_bfloat16"
        )
    if schedule.precision == "mixed_float16" and row.not_float16:
        raise ConfigurationError(
            f"precision: strategy {row.name!r} cannot train in mixed_float16: {row.not_float16}; write "
            "precision=mixed_bfloat16 or precision=float32"
        )
    if schedule.train_steps and schedule.epochs:
        raise ConfigurationError(
            f"epochs: train_steps={schedule.train_steps} and epochs={schedule.epochs} both say how long to train; "
            "write one of them"
        )
    if schedule.keras_version == 3 and row.not_keras_3:
        able = [name for name, other in STRATEGIES.items() if not other.not_keras_3]
        raise ConfigurationError(
            f"keras_version: strategy {row.name!r} cannot train Keras 3 models: {row.not_keras_3}; write keras_version=2, "
            f"or a strategy of {', '.join(able)}"
        )
    if schedule.jit_compile and row.not_jit_compile:
        raise ConfigurationError(
            f"jit_compile: strategy {row.name!r} cannot compile its steps: {row.not_jit_compile}; write jit_compile=false"
        )
    if schedule.gradient_accumulation_steps > 1 and row.not_accumulated:
        raise ConfigurationError(
            f"gradient_accumulation_steps: strategy {row.name!r} does not sum gradients of several batches: "
            f"{row.not_accumulated}; write gradient_accumulation_steps=1 and a larger per_replica_batch_size"
        )
    if schedule.profile_steps:
        profile_window(schedule)


def profile_window(schedule: TrainingOptions) -> tuple[int, int] | None:
    """First and last training step to profile, from 1; None for none.

    Raises:
      ConfigurationError: `profile_steps` is not written as two steps.
    """
    if not schedule.profile_steps:
        return None
    found = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", schedule.profile_steps)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigurationError(
            f"profile_steps: {schedule.profile_steps!r} is no window of training steps; write first and last, such "
            "as 100,120"
        )
    first, last = int(found[1]), int(found[2])
    if schedule.train_steps and last > schedule.train_steps:
        raise ConfigurationError(
            f"profile_steps: {schedule.profile_steps!r} lies behind the last of {schedule.train_steps} training steps"
        )
    return first, last


def learning_rate_factor(scaling: str, num_batches: int) -> float:
    """Returns what a learning rate is multiplied by.

    Args:
      scaling: Value of the pipeline parameter `learning_rate_scaling`.
      num_batches: Batches of one training step: replicas that train in step, times `gradient_accumulation_steps`.
    """
    return {"none": 1.0, "linear": float(num_batches), "sqrt": math.sqrt(num_batches)}[scaling]

"""Declares all pipeline parameters of the Trainer: the only place that lists them.

Each field of the groups is one parameter with its type, default, limit and help. These
are derived from their `declarations`:

* `pipelines.spec.pipeline.Parameters`: `trainer.parameters` of the pipeline file.
* `components.trainer`: the signature, the docstring and the execution
  properties of the `Trainer` component.
* `strategy_table.check`: what is refused before any training process starts.
* `docs/parameters.md`, `docs/pipeline.schema.json` and the stubs (`.pyi`) that editors
  and type checkers read.

After a change here, run `make generated`. This module is plain Python, since every
training process imports it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.strategy_info import NAMES, StrategyInfo, strategy_named

_Value = TypeVar("_Value", bool, int, str)


@dataclass(frozen=True)
class Declaration:
    """A pipeline parameter, as its dataclass field declares it.

    Attributes:
      type: `bool`, `int` or `str`.
      help: One paragraph of Markdown for all documentation: what the parameter does,
        its unit, what 0 or an empty text means, and which strategies it goes with.
      minimum: Smallest allowed number; None for no limit.
      choices: All allowed values; empty if the type and the limit decide.
    """

    name: str
    type: type
    default: Any
    help: str
    minimum: int | None
    choices: tuple[str | int, ...]

    def check(self, value: Any) -> None:
        """Raises ConfigurationError if a value breaks the limit or the choices."""
        if self.minimum is not None and value < self.minimum:
            raise ConfigurationError(f"{self.name}: {value} is too small; write {self.minimum} or more")
        if self.choices and value not in self.choices:
            choices = ", ".join(map(str, self.choices))
            raise ConfigurationError(f"{self.name}: {value!r} is not known; choose one of {choices}")


def parameter(
    default: _Value,
    help: str,
    *,
    minimum: int | None = None,
    choices: Sequence[str | int] = (),
) -> _Value:
    """Returns a dataclass field that declares a parameter; see `Declaration`."""
    return field(default=default, metadata={"help": help, "minimum": minimum, "choices": tuple(choices)})


@dataclass(frozen=True)
class Distribution:
    """Strategy, processes and devices of the training."""

    strategy: str = parameter(
        "default",
        "The `tf.distribute` strategy to train under. `auto` chooses one that suits the workers and devices; "
        "`tfx-distribute plan` shows which one, and why.",
        choices=NAMES,
    )
    num_workers: int = parameter(
        1,
        "Number of training processes. Under `multi_worker_mirrored` the chief is one of them; under `parameter_server` "
        "the chief only coordinates and comes on top. All other strategies train in one process.",
        minimum=1,
    )
    num_parameter_servers: int = parameter(
        0,
        "Number of parameter servers, for `parameter_server` only; 0 starts one.",
        minimum=0,
    )
    accelerator_type: str = parameter(
        "auto",
        "Kind of device to train on. `auto` uses the GPUs that a process sees, or its CPU if there are none. "
        "With `tpu`, leave it at `auto`.",
        choices=("auto", "cpu", "gpu"),
    )
    accelerator_count: int = parameter(
        0,
        "Number of devices per training process. With 0, `default`, `one_device` and `parameter_server` use one device, "
        "and the other strategies use all GPUs that the process sees, or else its CPU as one device. On a CPU it is the "
        "number of logical devices, so that `mirrored` can be tried without a GPU.",
        minimum=0,
    )
    all_reduce: str = parameter(
        "auto",
        "How replicas sum their gradients; `auto` leaves it to TensorFlow. `mirrored` takes `nccl`, `hierarchical_copy` "
        "and `reduction_to_one_device`; `multi_worker_mirrored` takes `ring`, `nccl` and, on Vertex AI, `reduction_server`.",
        choices=("auto", "ring", "nccl", "hierarchical_copy", "reduction_to_one_device", "reduction_server"),
    )
    partition_min_bytes: int = parameter(
        0,
        "Smallest part, in bytes, that a variable is divided into among the parameter servers of `parameter_server`; "
        "0 keeps each variable whole.",
        minimum=0,
    )
    mesh: str = parameter(
        "",
        "Devices of `model_parallel` as `BATCHxMODEL`, such as `2x4`: examples are divided along the first dimension, "
        "variables along the second. Empty uses all devices along the batch.",
    )
    layout_rules: str = parameter(
        "",
        "How `model_parallel` divides variables along the dimensions of the mesh, such as "
        "`kernel = unsharded, model; bias = model`: regular expressions for names of variables, each with `batch`, `model` "
        "or `unsharded` for every dimension. The first rule that matches counts; empty divides no variable.",
    )
    tpu: str = parameter(
        "local",
        "TPU of the strategy `tpu`: a name, a `grpc://` address, or `local` for the TPU of a TPU VM.",
    )

    @property
    def info(self) -> StrategyInfo:
        """Properties of the strategy. `auto` has none: resolve it first."""
        return strategy_named(self.strategy)


@dataclass(frozen=True)
class TrainingOptions:
    """Batches, length, precision and learning rate of the training.

    A `run_fn` decides on all of these itself except `train_steps`, `eval_steps` and
    `keras_version`.
    """

    per_replica_batch_size: int = parameter(
        32,
        "Number of examples that one replica takes in one batch. The global batch is this, times the replicas that train "
        "in step, times `gradient_accumulation_steps`.",
        minimum=1,
    )
    train_steps: int = parameter(
        0,
        "Number of training steps in all; 0 lets `epochs` decide. `build_model` needs exactly one of the two.",
        minimum=0,
    )
    epochs: int = parameter(
        0,
        "Number of times that each example is seen; 0 lets `train_steps` decide. `build_model` needs exactly one of the "
        "two.",
        minimum=0,
    )
    steps_per_epoch: int = parameter(
        0,
        "Number of training steps in one Keras epoch, for `train_steps`: after each epoch, the model is evaluated and the "
        "epoch hooks of callbacks are called. 0 makes all of `train_steps` one epoch. With `epochs`, an epoch is always one "
        "pass over the examples.",
        minimum=0,
    )
    validation_freq: int = parameter(
        1,
        "Number of epochs from one evaluation during training to the next, as in Keras's `fit`.",
        minimum=1,
    )
    eval_steps: int = parameter(
        0,
        "Number of batches in each evaluation during training; 0 evaluates on the whole split.",
        minimum=0,
    )
    export_best: str = parameter(
        "",
        "Metric, such as `val_loss`: the model with its best value is exported, of those at the end of each epoch. Empty "
        "exports the last weights.",
    )
    export_mode: str = parameter(
        "",
        "Whether the smallest or the largest value of `export_best` is the best. Empty is `min`, for a loss.",
        choices=("", "min", "max"),
    )
    class_weight: str = parameter(
        "",
        "Weights of the classes in the training loss, such as `0: 1, 1: 2.5`, as in Keras's `fit`: each training example is "
        "weighted by the class that its label names. Classes that are not listed have weight 1; empty weights none.",
    )
    precision: str = parameter(
        "float32",
        "Keras precision policy. `mixed_float16` needs a GPU, and is not available under `parameter_server`, "
        "`central_storage`, `tpu` and `model_parallel`.",
        choices=("float32", "mixed_float16", "mixed_bfloat16"),
    )
    learning_rate_scaling: str = parameter(
        "none",
        "How to fit the learning rate of `build_model` to the global batch: `linear` multiplies it by the number of batches "
        "in a training step (replicas that train in step, times `gradient_accumulation_steps`), `sqrt` by the square root "
        "of that number; `none` keeps it.",
        choices=("none", "linear", "sqrt"),
    )
    seed: int = parameter(
        0,
        "Seed of the initial weights, of shuffling and of dropout.",
        minimum=0,
    )
    keras_version: int = parameter(
        2,
        "Generation of Keras that `tf.keras` is in the user's module. 3 is not available under `parameter_server`, "
        "`central_storage`, `tpu` and `model_parallel`.",
        choices=(2, 3),
    )
    gradient_accumulation_steps: int = parameter(
        1,
        "Number of batches per replica whose gradients are summed for one training step; the global batch grows by the same "
        "factor. While they are summed, the gradient of an embedding takes as much memory as its whole table. Not available "
        "under `parameter_server` and `model_parallel`.",
        minimum=1,
    )
    jit_compile: bool = parameter(
        False,
        "Compiles the computation of gradients with XLA. Not available under `parameter_server`, `central_storage` and "
        "`model_parallel`.",
    )
    steps_per_execution: int = parameter(
        0,
        "Number of training steps in one TensorFlow call; 0 runs as many as take about half a second, or one if a callback "
        "has batch hooks. Batch hooks are called once per TensorFlow call. Write 1 if the model exchanges values between "
        "replicas, as a contrastive loss over the global batch does.",
        minimum=0,
    )
    profile_steps: str = parameter(
        "",
        "First and last training step to record with the TensorBoard profiler, such as `100,120`; empty records none.",
    )
    drop_remainder: bool = parameter(
        False,
        "Gives all batches the same size; examples left over at the end of an epoch go into the next one. Without it, each "
        "epoch sees every example once, in batches that are slightly smaller where needed. Always on under `tpu` and "
        "`model_parallel`.",
    )


@dataclass(frozen=True)
class InputOptions:
    """How training processes read examples.

    A `run_fn` reads by itself and takes none of these.
    """

    shuffle_buffer_size: int = parameter(
        0,
        "Number of examples that are shuffled together, over all processes; 0 takes as many as fit in 64 MiB, at most "
        "10,000.",
        minimum=0,
    )
    cycle_length: int = parameter(
        64,
        "Largest number of files that a process reads at the same time.",
        minimum=1,
    )
    cache: str = parameter(
        "auto",
        "`memory` keeps the examples that a process has read in its memory, `none` reads them again in each epoch; `auto` "
        "keeps them if a process reads at most 512 MiB.",
        choices=("auto", "memory", "none"),
    )


@dataclass(frozen=True)
class FaultTolerance:
    """How training survives the loss of a process.

    A `run_fn` saves by itself and takes only `heartbeat_timeout_secs` and
    `max_restarts`.
    """

    save_checkpoints_secs: int = parameter(
        60,
        "Seconds between two saves of the training state; 0 saves by `save_checkpoints_steps` alone.",
        minimum=0,
    )
    save_checkpoints_steps: int = parameter(
        0,
        "Number of training steps between two saves of the training state; 0 saves by `save_checkpoints_secs` alone.",
        minimum=0,
    )
    heartbeat_timeout_secs: int = parameter(
        10,
        "Seconds without a heartbeat after which a training process counts as lost.",
        minimum=1,
    )
    max_restarts: int = parameter(
        3,
        "Largest number of times in a row that a cluster which lost a process is restarted from the last save. The count "
        "begins again once training has advanced since the last restart. 0 never restarts.",
        minimum=0,
    )
    progress_timeout_secs: int = parameter(
        3600,
        "Seconds without progress after which a training process counts as stuck; 0 for no limit.",
        minimum=0,
    )


GROUPS = (Distribution, TrainingOptions, InputOptions, FaultTolerance)


def declarations(*groups: type) -> tuple[Declaration, ...]:
    """Returns the parameters that dataclasses declare, in order."""
    return tuple(
        Declaration(each.name, cast(type, each.type), each.default, **each.metadata)
        for group in groups
        for each in fields(group)
    )


def check_values(group: Any) -> None:
    """Checks the values of a dataclass of parameters against their declarations."""
    for declared in declarations(type(group)):
        declared.check(getattr(group, declared.name))

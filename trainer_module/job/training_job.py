"""TrainingJob: everything a training process is told, as one JSON document.

The document is the same for every process of a cluster; who a process is comes from its TF_CONFIG. It is what the
Trainer component writes and what `python -m tfx_distribute.trainer_module --job FILE` reads, whatever the launcher.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter

from tfx_distribute.trainer_module.job.strategy_info import StrategyInfo, strategy_named


@dataclass(frozen=True)
class UserModule:
    """The user's code.

    Attributes:
      function: Dotted path of the function to call, such as `model.build_model` or `package.module.run_fn`.
      search_path: Folders to import from, before those of the Python installation.
    """

    function: str
    search_path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Split:
    """One part of the data.

    Attributes:
      files: TFRecord files of serialized tf.Examples, gzipped where they end in `.gz`.
      num_examples: Examples in all of them.
      num_bytes: Bytes of all files.
      sharded: Whether the files are shards, that is, of the same size but for one example, the larger ones first; then
        each process can read files of its own.
    """

    files: tuple[str, ...]
    num_examples: int
    num_bytes: int = 0
    sharded: bool = False


@dataclass(frozen=True)
class TrainingData:
    """What is read.

    Attributes:
      train: The split that is trained on.
      eval: The split that is evaluated on after each epoch; None for no evaluation.
      label: Name of the feature that the model predicts.
      example_weight: Name of the feature that says what each example counts; None where all count alike.
      transform_graph: Folder of the transform graph that made the examples; None for untransformed examples.
      schema: File of the schema of the examples; needed where there is no transform graph.
      num_corrupt_records: Records that cannot be read, and are left out.
    """

    train: Split
    eval: Split | None
    label: str
    transform_graph: str | None
    schema: str | None
    example_weight: str | None = None
    num_corrupt_records: int = 0


@dataclass(frozen=True)
class Distribution:
    """How the work is spread; the pipeline parameters of the same names.

    Attributes:
      strategy: Name of a strategy.
      num_workers: Training processes, the chief included.
      num_parameter_servers: Parameter servers beside them.
      accelerator_type: One of `compatibility.ACCELERATORS`.
      accelerator_count: Devices per training process; 0 takes all there are.
      all_reduce: One of `compatibility.ALL_REDUCE`.
      devices: Names of the devices to use, such as `GPU:0,GPU:2`, in place of `accelerator_count`; empty for the first ones.
      num_evaluators: Processes that evaluate beside the training ones, 0 or 1.
      partition_min_bytes: Variables are divided among parameter servers into parts of at least so many bytes; 0 keeps
        each whole.
      mesh: Devices of `model_parallel` as `BATCHxMODEL`, such as `2x4`; empty for all of them along the batch.
      layout_rules: Which dimension of which variables is divided along which dimension of the mesh; see `layout`.
      tpu: TPU of the strategy `tpu`: a name, a `grpc://` address, or `local` for a TPU VM's own.
    """

    strategy: str = "default"
    num_workers: int = 1
    num_parameter_servers: int = 0
    accelerator_type: str = "auto"
    accelerator_count: int = 0
    all_reduce: str = "auto"
    devices: str = ""
    num_evaluators: int = 0
    partition_min_bytes: int = 0
    mesh: str = ""
    layout_rules: str = ""
    tpu: str = "local"

    @property
    def info(self) -> StrategyInfo:
        """The properties of the strategy; a ConfigurationError for an unknown one."""
        return strategy_named(self.strategy)


@dataclass(frozen=True)
class TrainingOptions:
    """How long and how training goes.

    Attributes:
      per_replica_batch_size: Examples that one replica takes in one step.
      train_steps: Training steps in all; 0 where `epochs` says how long.
      epochs: Times that each example is seen; 0 where `train_steps` says how long.
      eval_steps: Batches of each evaluation; 0 for the whole split.
      precision: Name of a Keras mixed-precision policy.
      learning_rate_scaling: One of `compatibility.LEARNING_RATE_SCALINGS`.
      warmup_steps: Training steps in which the learning rate rises to its value.
      seed: Seed of initial weights, of shuffling and of dropout.
      keras_version: Generation of Keras that `tf.keras` is, 2 or 3.
      global_clipnorm: Norm over all variables that gradients are clipped to; 0 clips none.
      gradient_accumulation_steps: Batches of each replica whose gradients are summed for one training step.
      jit_compile: Whether XLA compiles the computation of gradients.
      steps_per_execution: Training steps of one TensorFlow call; 0 for as many as take half a second.
      profile_steps: First and last training step that the TensorBoard profiler watches, such as `100,120`; empty for none.
      drop_remainder: Whether all batches have the same size; what is left of an epoch then goes into the next one.
    """

    per_replica_batch_size: int = 32
    train_steps: int = 0
    epochs: int = 0
    eval_steps: int = 0
    precision: str = "float32"
    learning_rate_scaling: str = "none"
    warmup_steps: int = 0
    seed: int = 0
    keras_version: int = 2
    global_clipnorm: float = 0.0
    gradient_accumulation_steps: int = 1
    jit_compile: bool = False
    steps_per_execution: int = 0
    profile_steps: str = ""
    drop_remainder: bool = False


@dataclass(frozen=True)
class InputOptions:
    """How examples are read; the pipeline parameters of the same names.

    Attributes:
      shuffle_buffer_size: Examples that are shuffled among each other, over all processes; 0 for as many as 64 MiB hold, at
        most 10,000.
      cycle_length: Files that a process reads at a time, at most.
      num_parallel_calls: Threads that read, and threads that parse; 0 lets tf.data decide.
      prefetch_buffer_size: Batches that are made ahead; 0 lets tf.data decide.
      cache: One of `compatibility.CACHES`: whether a process keeps what it has read in memory.
      max_corrupt_records: Records that cannot be read and are left out, at most.
    """

    shuffle_buffer_size: int = 0
    cycle_length: int = 64
    num_parallel_calls: int = 0
    prefetch_buffer_size: int = 0
    cache: str = "auto"
    max_corrupt_records: int = 0


@dataclass(frozen=True)
class FaultTolerance:
    """What is done so that little is lost when a process dies; the pipeline parameters of the same names.

    Attributes:
      save_checkpoints_secs: Seconds between two saves of the training state; 0 saves by `save_checkpoints_steps` alone.
      save_checkpoints_steps: Training steps between two saves; 0 saves by `save_checkpoints_secs` alone.
      heartbeat_timeout_secs: Seconds without a sign of life after which a process counts as lost.
      max_restarts: How often a cluster that lost a process is started again.
      progress_timeout_secs: Seconds without progress after which a training process counts as stuck; 0 for no limit.
    """

    save_checkpoints_secs: int = 60
    save_checkpoints_steps: int = 0
    heartbeat_timeout_secs: int = 10
    max_restarts: int = 3
    progress_timeout_secs: int = 3600


PARAMETERS = (
    Distribution,
    TrainingOptions,
    InputOptions,
    FaultTolerance,
)  # whose fields are the Trainer's pipeline parameters


@dataclass(frozen=True)
class RunFn:
    """What TFX hands to a `run_fn`, as the JSON that TFX itself writes; see `run_fn.py`.

    Attributes:
      inputs: Input artifacts.
      exec_properties: Execution properties that `FnArgs` is made from.
      hyperparameters: Values of a Tuner's `best_hyperparameters`, or None.
    """

    inputs: str
    exec_properties: Mapping[str, Any]
    hyperparameters: Mapping[str, Any] | None


@dataclass(frozen=True)
class Outputs:
    """Where results go. Each is written once, by the chief.

    Attributes:
      serving_model_dir: Folder of the SavedModel.
      model_run_dir: Folder for TensorBoard logs and the like.
      result_file: JSON of a `TrainingResult`.
      checkpoint_dir: Folder of the training state, the same for each try with the same inputs; empty to save none.
    """

    serving_model_dir: str
    model_run_dir: str
    result_file: str
    checkpoint_dir: str = ""


@dataclass(frozen=True)
class TrainingJob:
    """Everything a training process is told.

    Attributes:
      module: The user's code.
      data: What is read; None for a `run_fn`, which reads for itself.
      distribution: How the work is spread.
      schedule: How long and how training goes.
      outputs: Where results go.
      hparams: The user's own hyperparameters.
      reading: How examples are read.
      recovery: What is done against the loss of a process.
      run_fn: What a `run_fn` gets; None for `build_model`.
    """

    module: UserModule
    data: TrainingData | None
    distribution: Distribution
    schedule: TrainingOptions
    outputs: Outputs
    hparams: Mapping[str, Any] = field(default_factory=dict)
    reading: InputOptions = InputOptions()
    recovery: FaultTolerance = FaultTolerance()
    run_fn: RunFn | None = None

    def to_json(self) -> str:
        """Returns the document.

        Hyperparameters may be infinite or NaN. The document then has the constants `Infinity`, `-Infinity` and `NaN`, as
        Python's own `json` writes and reads them; pydantic would write null.
        """
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str | bytes) -> "TrainingJob":
        """Reads the document.

        Raises:
          pydantic.ValidationError: It is not one.
        """
        return _JOB.validate_json(text)


@dataclass(frozen=True)
class TrainingResult:
    """What came of a job, written by the chief.

    Attributes:
      num_replicas: Replicas that trained in step.
      global_batch_size: Examples per training step over all replicas; 0 where a `run_fn` decides.
      train_steps: Training steps taken; 0 where a `run_fn` decides.
      seconds: Wall time of training, without start-up and export.
      metrics: The last value of each training and `val_` metric.
    """

    # A loss that has become infinite or no number is a result too.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    num_replicas: int
    global_batch_size: int
    train_steps: int
    seconds: float
    metrics: Mapping[str, float]

    def to_json(self) -> str:
        """The document."""
        return _RESULT.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "TrainingResult":
        """Reads the document."""
        return _RESULT.validate_json(text)


def keras_environment(keras_version: int) -> dict[str, str]:
    """Environment variables that decide what `tf.keras` is; TensorFlow reads them when it is imported.

    Source: https://www.tensorflow.org/guide/keras#tensorflow_keras_2 (TF_USE_LEGACY_KERAS).
    """
    return {"TF_USE_LEGACY_KERAS": "1" if keras_version == 2 else "0", "KERAS_BACKEND": "tensorflow"}


_JOB = TypeAdapter(TrainingJob)
_RESULT = TypeAdapter(TrainingResult)

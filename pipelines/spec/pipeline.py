"""The declarative pipeline: typed, documented, validated. The YAML file is one way to write it, Python another.

```python
spec = PipelineSpec(
    name="digits",
    module="model.py",
    data=Data(csv="data/"),
    transform=Transform(),
    trainer=Trainer(label="digit", parameters=Parameters(strategy="mirrored", epochs=20)),
)
```

Paths of inputs are relative to the YAML file (in Python, to the working folder); paths of outputs to the working folder.
Importing this imports neither TFX nor TensorFlow.
"""

from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, ValidationInfo, field_validator, model_validator

from tfx_distribute.pipelines.spec import files, metric_config
from tfx_distribute.pipelines.spec.base import Scalar, ScalarValue, SpecModel
from tfx_distribute.pipelines.spec.beam import Beam
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.spec.targets import Targets
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, InputOptions, TrainingOptions

_Kind = TypeVar("_Kind", Distribution, TrainingOptions, InputOptions, FaultTolerance)

_MAX_PROCESSES = 1_000  # of a role: far beyond any cluster of tf.distribute, whose documents grow with its square

BASE_DIR = "base_dir"  # key of the validation context: the folder that input paths are relative to


def _input_path(value: str, info: ValidationInfo) -> str:
    """Makes the path of an input absolute; leaves addresses such as `gs://bucket/data` alone."""
    scheme, found, rest = value.partition("://")
    if scheme == "package" and found:
        package, _, inside = rest.partition("/")
        try:
            installed = find_spec(package) if all(part.isidentifier() for part in package.split(".")) else None
        except ImportError:
            installed = None
        if installed is None or not installed.submodule_search_locations:
            raise ValueError(f"there is no installed package {package!r}")
        return str(files.resolve(inside or ".", next(iter(installed.submodule_search_locations))))
    if found:
        return value
    return str(files.resolve(value, (info.context or {}).get(BASE_DIR, ".")))


InputPath = Annotated[str, AfterValidator(_input_path)]


class Data(SpecModel):
    """Where examples come from: exactly one of `csv`, `tfrecord`, `parquet` and `example_gen`."""

    SOURCES: ClassVar[tuple[str, ...]] = ("csv", "tfrecord", "parquet", "example_gen")

    csv: InputPath | None = None
    """A CSV file with a header line, or a folder of them. `package://NAME/PATH` is a path in an installed package."""
    tfrecord: InputPath | None = None
    """A TFRecord file of tf.Examples, or a folder of them."""
    parquet: InputPath | None = None
    """A Parquet file, or a folder of them."""
    example_gen: str | None = None
    """Dotted path of an ExampleGen component class, importable beside the module or installed."""
    example_gen_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the `example_gen` class."""
    splits: dict[str, Annotated[int, Field(ge=1, lt=2**31)]] = Field(default={"train": 2, "eval": 1})
    """Name of each split and its share in hash buckets."""
    schema_file: InputPath | None = None
    """A curated schema, `schema.pbtxt`; otherwise one is inferred from the data."""

    @model_validator(mode="after")
    def _one_source(self) -> "Data":
        given = [name for name in self.SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"write exactly one of {', '.join(self.SOURCES)}; here: {', '.join(given) or 'none'}")
        if self.example_gen_args and self.example_gen is None:
            raise ValueError("example_gen_args: only goes with example_gen")
        if "train" not in self.splits:
            raise ValueError(f"splits: one has to be called 'train'; here: {', '.join(self.splits)}")
        return self

    @property
    def source(self) -> tuple[str, str]:
        """Which source is given, and its value."""
        name = next(name for name in self.SOURCES if getattr(self, name) is not None)
        return name, getattr(self, name)


class Transform(SpecModel):
    """TFX Transform: features are computed once for training, evaluation and serving."""

    preprocessing_fn: str = "preprocessing_fn"
    """Name of the function in the module."""
    disable_statistics: bool = False
    """Leaves out the statistics of features after the transform; those before it are StatisticsGen's."""


class Shards(SpecModel):
    """Sharder: examples are written as shards that training processes share."""

    PARAMETERS: ClassVar[tuple[str, ...]] = ("num_shards",)  # that can be given anew with `-p`

    num_shards: Annotated[int, BeforeValidator(lambda value: 0 if value == "auto" else value), Field(ge=0, le=100_000)] = 0
    """Shards of each split; a pipeline parameter. `auto` or 0 for as many as suit the training processes and the data."""
    compression: Literal["none", "gzip"] | None = None
    """Whether shards are gzipped: smaller, and slower to read. Default `none`; for a `run_fn`, which may expect what TFX's
    Transform writes, `gzip`."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Seed of the order of examples."""


class Parameters(SpecModel):
    """The pipeline parameters of the Trainer, with the pipeline's defaults. Each can be given anew with `-p name=value`."""

    strategy: str = Field(Distribution.strategy, json_schema_extra={"enum": list(strategy_table.NAMES)})
    """The `tf.distribute` strategy."""
    num_workers: int = Field(Distribution.num_workers, ge=1, le=_MAX_PROCESSES)
    """Training processes, the chief included; under `parameter_server`, workers beside the chief, which coordinates."""
    num_parameter_servers: int = Field(Distribution.num_parameter_servers, ge=0, le=_MAX_PROCESSES)
    """Parameter servers; 0 for one where the strategy needs one."""
    accelerator_type: str = Field(
        Distribution.accelerator_type, json_schema_extra={"enum": list(strategy_table.ACCELERATORS)}
    )
    """Kind of device to train on; `auto` takes the GPUs that a process sees, or else its CPU."""
    accelerator_count: int = Field(Distribution.accelerator_count, ge=0, le=10_000)
    """Devices per training process; 0 takes all. On a CPU, that many logical devices."""
    all_reduce: str = Field(Distribution.all_reduce, json_schema_extra={"enum": list(strategy_table.ALL_REDUCE)})
    """How replicas sum their gradients; `auto` leaves it to TensorFlow."""
    devices: str = Distribution.devices
    """Names of the devices to train on, such as `GPU:0,GPU:2`, in place of `accelerator_count`."""
    num_evaluators: int = Field(Distribution.num_evaluators, ge=0)
    """1 for a process that evaluates beside the training ones, which then go on meanwhile."""
    partition_min_bytes: int = Field(Distribution.partition_min_bytes, ge=0)
    """Variables are divided among parameter servers into parts of at least so many bytes; 0 keeps each whole."""
    mesh: str = Distribution.mesh
    """Devices of `model_parallel` as BATCHxMODEL, such as `2x4`; empty for all of them along the batch."""
    layout_rules: str = Distribution.layout_rules
    """Which dimension of which variables is divided along which dimension of the mesh, such as
    `kernel = unsharded, model; bias = model`."""
    tpu: str = Distribution.tpu
    """TPU of the strategy `tpu`: a name, a `grpc://` address, or `local` for a TPU VM's own."""
    per_replica_batch_size: int = Field(TrainingOptions.per_replica_batch_size, ge=1)
    """Examples that one replica takes in one training step; the global batch is that times the replicas."""
    train_steps: int = Field(TrainingOptions.train_steps, ge=0)
    """Training steps in all; or write `epochs`."""
    epochs: int = Field(TrainingOptions.epochs, ge=0)
    """Times that each example is seen; or write `train_steps`."""
    eval_steps: int = Field(TrainingOptions.eval_steps, ge=0)
    """Batches of each evaluation while training; 0 for the whole split."""
    precision: str = Field(TrainingOptions.precision, json_schema_extra={"enum": list(strategy_table.PRECISIONS)})
    """Keras precision policy."""
    learning_rate_scaling: str = Field(
        TrainingOptions.learning_rate_scaling, json_schema_extra={"enum": list(strategy_table.LEARNING_RATE_SCALINGS)}
    )
    """What the replicas do to the learning rate of `build_model`: nothing, times their number, times its square root."""
    warmup_steps: int = Field(TrainingOptions.warmup_steps, ge=0)
    """Training steps in which the learning rate rises, evenly, to its value."""
    seed: int = Field(TrainingOptions.seed, ge=0, lt=2**32)
    """Seed of initial weights and shuffling."""
    keras_version: int = Field(
        TrainingOptions.keras_version, json_schema_extra={"enum": list(strategy_table.KERAS_VERSIONS)}
    )
    """Generation of Keras that `tf.keras` is."""
    global_clipnorm: FiniteFloat = Field(TrainingOptions.global_clipnorm, ge=0)
    """Norm over all variables that gradients are clipped to; 0 clips none."""
    gradient_accumulation_steps: int = Field(TrainingOptions.gradient_accumulation_steps, ge=1)
    """Batches of each replica whose gradients are summed for one training step."""
    jit_compile: bool = TrainingOptions.jit_compile
    """Whether XLA compiles the computation of gradients."""
    steps_per_execution: int = Field(TrainingOptions.steps_per_execution, ge=0)
    """Training steps of one TensorFlow call; 0 for as many as take half a second."""
    profile_steps: str = TrainingOptions.profile_steps
    """First and last training step that the TensorBoard profiler watches, such as `100,120`; empty for none."""
    drop_remainder: bool = TrainingOptions.drop_remainder
    """Whether all batches have the same size; what is left of an epoch then goes into the next one."""
    shuffle_buffer_size: int = Field(InputOptions.shuffle_buffer_size, ge=0)
    """Examples that are shuffled among each other, over all processes; 0 for as many as 64 MiB hold, at most 10,000."""
    cycle_length: int = Field(InputOptions.cycle_length, ge=1)
    """Files that a process reads at a time, at most."""
    num_parallel_calls: int = Field(InputOptions.num_parallel_calls, ge=0)
    """Threads that read, and threads that parse; 0 lets tf.data decide."""
    prefetch_buffer_size: int = Field(InputOptions.prefetch_buffer_size, ge=0)
    """Batches that are made ahead; 0 lets tf.data decide."""
    cache: str = Field(InputOptions.cache, json_schema_extra={"enum": list(strategy_table.CACHES)})
    """Whether a process keeps what it has read in memory; `auto` where that is at most 512 MiB."""
    max_corrupt_records: int = Field(InputOptions.max_corrupt_records, ge=0)
    """Records that cannot be read and are left out, at most."""
    save_checkpoints_secs: int = Field(FaultTolerance.save_checkpoints_secs, ge=0)
    """Seconds between two saves of the training state; 0 saves by `save_checkpoints_steps` alone."""
    save_checkpoints_steps: int = Field(FaultTolerance.save_checkpoints_steps, ge=0)
    """Training steps between two saves of the training state; 0 saves by `save_checkpoints_secs` alone."""
    heartbeat_timeout_secs: int = Field(FaultTolerance.heartbeat_timeout_secs, ge=1)
    """Seconds without a sign of life after which a training process counts as lost."""
    max_restarts: int = Field(FaultTolerance.max_restarts, ge=0)
    """How often a cluster that lost a process is started again."""
    progress_timeout_secs: int = Field(FaultTolerance.progress_timeout_secs, ge=0)
    """Seconds without progress after which a training process counts as stuck; 0 for no limit."""

    @model_validator(mode="after")
    def _goes_together(self) -> "Parameters":
        strategy_table.check(self.distribution, self.schedule, self.reading, self.recovery)
        return self

    @property
    def distribution(self) -> Distribution:
        """The parameters that say how the work is spread; `auto` is resolved."""
        return strategy_table.resolve(self._those_of(Distribution))

    @property
    def schedule(self) -> TrainingOptions:
        """The parameters that say how long and how training goes."""
        return self._those_of(TrainingOptions)

    @property
    def reading(self) -> InputOptions:
        """The parameters that say how examples are read."""
        return self._those_of(InputOptions)

    @property
    def recovery(self) -> FaultTolerance:
        """The parameters that say what is done against the loss of a process."""
        return self._those_of(FaultTolerance)

    def _those_of(self, kind: type[_Kind]) -> _Kind:
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)})


class Trainer(SpecModel):
    """Training: what is predicted, and how."""

    label: str | None = None
    """Name of the feature that the model predicts, after the transform. Needed by `build_model`."""
    example_weight: str | None = None
    """Name of the feature that says what each example counts in loss, weighted metrics and evaluation, after the transform;
    leave it out where all count alike."""
    parameters: Parameters = Parameters()
    """Pipeline parameters and their defaults."""
    hparams: dict[str, ScalarValue] = Field(default_factory=dict)
    """The module's own hyperparameters, in `context.hparams`; each can be given anew with `-p name=value`."""
    custom_config: dict[str, Any] = Field(default_factory=dict)
    """For a `run_fn`: passed on in `fn_args.custom_config`."""

    @field_validator("hparams")
    @classmethod
    def _own_names(cls, hparams: dict[str, Scalar]) -> dict[str, Scalar]:
        taken = sorted(set(hparams) & {*Parameters.model_fields, *Shards.PARAMETERS})
        if taken:
            raise ValueError(f"{taken[0]!r} is a pipeline parameter; write it under trainer.parameters")
        return hparams


class Change(SpecModel):
    """How a metric may change against the latest blessed model."""

    absolute: FiniteFloat | None = None
    """Least (or, where lower is better, greatest) difference."""
    relative: FiniteFloat | None = None
    """The same as a fraction of the magnitude of the blessed model's value."""
    higher_is_better: bool = True
    """Direction of the metric."""

    @model_validator(mode="after")
    def _some_bound(self) -> "Change":
        if self.absolute is None and self.relative is None:
            raise ValueError("write absolute, relative or both")
        return self


class Metric(SpecModel):
    """One metric, and what it has to be for the model to be pushed."""

    lower_bound: FiniteFloat | None = None
    """Least value."""
    upper_bound: FiniteFloat | None = None
    """Greatest value."""
    change: Change | None = None
    """Against the latest blessed model; the first model has nothing to be compared with."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the metric's class."""

    @property
    def has_threshold(self) -> bool:
        """Whether the metric decides on the model."""
        return any(value is not None for value in (self.lower_bound, self.upper_bound, self.change))


class Evaluate(SpecModel):
    """TFX Evaluator: metrics on held-out examples, and thresholds that a model has to meet to be pushed."""

    metrics: dict[str, Metric] = Field(min_length=1)
    """Name of a Keras or TFMA metric class -> its thresholds."""
    label: str | None = None
    """Name of the label; default `trainer.label`."""
    slices: list[list[str]] = Field(default_factory=list)
    """Features to also evaluate by, such as `[[country], [country, device]]`."""
    splits: list[str] = Field(default=["eval"])
    """Splits to evaluate on."""
    preprocessing_functions: list[str] | None = None
    """Signatures of the model that make features and label out of examples; needed only with a `run_fn`."""

    @field_validator("metrics")
    @classmethod
    def _thresholds_on_one_number(cls, metrics: dict[str, Metric]) -> dict[str, Metric]:
        for name, metric in metrics.items():
            if metric.has_threshold:
                metric_config.check_one_number(name, metric.config)
        return metrics

    @property
    def has_thresholds(self) -> bool:
        """Whether a model may be refused."""
        return any(metric.has_threshold for metric in self.metrics.values())


class Push(SpecModel):
    """TFX Pusher: a model that met its thresholds is copied to where it is served from."""

    directory: str | None = None
    """Folder that gets a numbered folder for each model; default `<root>/serving`."""


class PipelineSpec(SpecModel):
    """A TFX pipeline whose way of training is a parameter."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """Name of the pipeline: lower-case letters, digits and hyphens."""
    module: str
    """The user's code: a Python file, relative to the YAML file, or the dotted name of an installed module. It has
    `build_model(context)` or a TFX `run_fn(fn_args)`, and `preprocessing_fn(inputs)` where there is a transform."""
    data: Data
    """Where examples come from."""
    transform: Transform | None = None
    """The transform; leave it out to train on the examples as they are, write `{}` for the defaults."""
    shards: Shards = Shards()
    """What is trained on."""
    trainer: Trainer
    """Training."""
    evaluate: Evaluate | None = None
    """Evaluation; leave it out to push every model."""
    push: Push | None = None
    """Pushing; leave it out to push no model."""
    beam: Beam = Beam()
    """Where the Beam pipelines of all components run."""
    resources: dict[str, MachineSpec] = Field(default_factory=dict)
    """Machines on Kubeflow and Vertex AI, by component: `Trainer` is that of each training process, `ParameterServer` that
    of parameter servers and their coordinator, `default` that of all components that have none here."""
    targets: Targets = Targets()
    """What is specific to each place that the pipeline runs in."""

    @model_validator(mode="after")
    def _evaluator_has_examples(self) -> "PipelineSpec":
        if self.trainer.parameters.num_evaluators and "eval" not in self.data.splits:
            raise ValueError(
                "trainer.parameters.num_evaluators: there is no split 'eval' to evaluate on; data.splits has "
                f"{', '.join(self.data.splits)}; write num_evaluators: 0, or a split eval"
            )
        return self

    @model_validator(mode="after")
    def _can_be_evaluated(self) -> "PipelineSpec":
        if self.evaluate is None:
            return self
        missing = [split for split in self.evaluate.splits if split not in self.data.splits]
        if missing:
            raise ValueError(f"evaluate: there is no split {missing[0]!r}; data.splits has {', '.join(self.data.splits)}")
        if self.evaluate.label is None and self.trainer.label is None:
            raise ValueError("evaluate: the name of the label is missing; write evaluate.label or trainer.label")
        return self

    @field_validator("module")
    @classmethod
    def _absolute(cls, module: str, info: ValidationInfo) -> str:
        if not module.endswith(".py"):
            return module
        # A link keeps its name, which the module is imported by, and its folder, which it imports from.
        name = module.rpartition("/")[2]
        return str(Path(_input_path(module.removesuffix(name) or ".", info)) / name)

    def with_parameters(self, given: dict[str, Scalar]) -> "PipelineSpec":
        """The same pipeline with other values of pipeline parameters or hyperparameters.

        `train_steps` and `epochs` replace each other.

        Args:
          given: Name -> value.

        Raises:
          pydantic.ValidationError: A value is wrong, or a name is neither a parameter nor a hyperparameter.
        """
        parameters = self.trainer.parameters.model_dump(exclude_unset=True)
        for name, other in (("train_steps", "epochs"), ("epochs", "train_steps")):
            if given.get(name) and not given.get(other):
                parameters.pop(other, None)
        own = {name: given[name] for name in Shards.PARAMETERS if name in given}
        shards = Shards.model_validate({**self.shards.model_dump(), **own})
        parameters.update({name: value for name, value in given.items() if name not in {*self.trainer.hparams, *own}})
        hparams = {name: given.get(name, value) for name, value in self.trainer.hparams.items()}
        trainer = self.trainer.model_copy(update={"parameters": Parameters.model_validate(parameters), "hparams": hparams})
        return self.model_copy(update={"trainer": trainer, "shards": shards})

"""Defines the pipeline file as pydantic models, which Python code can use as well.

Paths of inputs are relative to the YAML file or, in Python, to the working folder.
Paths of outputs are relative to the working folder. Importing this module imports
neither TFX nor TensorFlow.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, ValidationInfo, field_validator, model_validator

from tfx_distribute.components.example_gen import spans
from tfx_distribute.components.spec_model import Scalar, ScalarValue, SpecModel
from tfx_distribute.components.tuner import search as search_lib
from tfx_distribute.pipelines.spec import files, metric_config, parameter_model
from tfx_distribute.pipelines.spec.beam import Beam
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.job.labels import names_in
from tfx_distribute.trainer_module.job.parameters import GROUPS
from tfx_distribute.trainer_module.job.warm_start import WarmStart

if TYPE_CHECKING:  # generated: a stub only
    from tfx_distribute.pipelines.spec.parameters import Parameters
else:
    Parameters = parameter_model.make_model("Parameters", GROUPS, module=__name__)

# Key of the validation context: the folder that input paths are relative to.
BASE_DIR = "base_dir"


def _input_path(value: str, info: ValidationInfo) -> str:
    """Returns the absolute path of an input; leaves URLs such as `gs://data` alone."""
    scheme, separator, rest = value.partition("://")
    if scheme == "package" and separator:
        package, _, inside = rest.partition("/")
        try:
            installed = find_spec(package) if all(part.isidentifier() for part in package.split(".")) else None
        except ImportError:
            installed = None
        if installed is None or not installed.submodule_search_locations:
            raise ValueError(f"there is no installed package {package!r}")
        return str(files.resolve(inside or ".", next(iter(installed.submodule_search_locations))))
    if separator:
        return value
    return str(files.resolve(value, (info.context or {}).get(BASE_DIR, ".")))


InputPath = Annotated[str, AfterValidator(_input_path)]

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"  # of a pipeline

LATEST_BLESSED = "latest_blessed"  # value of `trainer.base_model`

# Settings that `-p name=value` can replace for one run, besides parameters,
# hyperparameters and the base model -> their section.
SECTION_PARAMETERS = {"span": "data", "stop_on_anomalies": "validation", "num_shards": "shards"}


def _base_model(value: str, info: ValidationInfo) -> str:
    return value if value in ("", LATEST_BLESSED) else _input_path(value, info)


# TFX refuses other names of splits.
SplitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
FeatureName = Annotated[str, Field(min_length=1)]
Distance = Annotated[FiniteFloat, Field(ge=0, le=1)]
# Name of a vocabulary -> row of its first entry.
FirstRow = Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=1)]
# Output of the model -> name of a feature.
NamesByOutput = Annotated[dict[str, FeatureName], Field(min_length=1)]


class Data(SpecModel):
    """Source of the examples.

    Write exactly one of `csv`, `tfrecord`, `parquet`, `images` and `example_gen`.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ("csv", "tfrecord", "parquet", "images", "example_gen")

    csv: InputPath | None = None
    """A CSV file with a header line, or a folder of such files. `package://NAME/PATH`
    is a path in an installed package. A path may have `{YYYY}`, `{MM}`, `{DD}` and
    `{HH}`, or `{SPAN}` for a number, and `{VERSION}`, the highest of which is read."""
    tfrecord: InputPath | None = None
    """A TFRecord file of tf.Examples, or a folder of such files."""
    parquet: InputPath | None = None
    """A Parquet file, or a folder of such files."""
    images: InputPath | None = None
    """A folder of JPEG, PNG, GIF and BMP files, with a folder for each class, or with a
    `metadata.csv` that has a column `file_name`. Examples have the file as `image`, and
    the name of the class as `label`, or the other columns of the table."""
    example_gen: str | None = None
    """Dotted path of an ExampleGen component class, in an installed package or in a
    file next to the module."""
    example_gen_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the `example_gen` class."""
    require: list[FeatureName] = Field(default_factory=list)
    """Names of features. Examples without a value of one of them, such as an empty cell
    of a CSV file, are left out and counted. Not with `example_gen`."""
    window: int = Field(1, ge=1, le=10_000)
    """Number of spans (days, hours or numbers) to read, up to `span`, for a path that
    has their fields."""
    missing: Literal["fail", "skip"] = "fail"
    """`fail` refuses a run if a span inside the window is missing, or its files lack
    columns that others have. `skip` leaves out missing spans, and names them; columns
    that a span lacks have no values."""
    span: Annotated[str, BeforeValidator(str, json_schema_input_type=str | int)] = ""
    """The last span, such as `2026-11-25`, or `2026-11-25T07` for an hour; a
    pipeline parameter. `scheduled` is the last one that had ended at the scheduled time
    of the run, or when it was started by hand. Default: the newest that is there when
    the run reads its data."""
    time_zone: str = "UTC"
    """Time zone of the dates in a path, such as `Asia/Tokyo`, for `span: scheduled`."""
    splits: dict[SplitName, Annotated[int, Field(ge=1, lt=2**31)]] = Field(default={"train": 2, "eval": 1})
    """Name of each split -> its share of the examples, in hash buckets. One split has
    to be named `train`."""
    schema_file: InputPath | None = None
    """File with a curated schema, such as `schema.pbtxt`. By default the schema is
    inferred from the data."""

    @model_validator(mode="after")
    def _one_source(self) -> "Data":
        sources = [name for name in self.SOURCES if getattr(self, name) is not None]
        if len(sources) != 1:
            raise ValueError(f"write exactly one of {', '.join(self.SOURCES)}; here: {', '.join(sources) or 'none'}")
        if self.example_gen_args and self.example_gen is None:
            raise ValueError("example_gen_args: only goes with example_gen")
        if self.require and self.example_gen is not None:
            raise ValueError("require: does not go with example_gen; leave the examples out there")
        if self.has_spans:
            spans.check_pattern(self.source[1])
            spans.find_zone(self.time_zone)
            spans.parse_last(self.source[1], self.spans_window)
        elif self.span or self.window > 1:
            raise ValueError(
                f"{'span' if self.span else 'window'}: goes with a path that has {{YYYY}}, {{MM}} and {{DD}}, or {{SPAN}}"
            )
        if "train" not in self.splits:
            raise ValueError(f"splits: one has to be called 'train'; here: {', '.join(self.splits)}")
        return self

    @property
    def source(self) -> tuple[str, str]:
        """Returns the name of the source and its value."""
        name = next(name for name in self.SOURCES if getattr(self, name) is not None)
        return name, getattr(self, name)

    @property
    def has_spans(self) -> bool:
        """True if the source has the data of many days, hours or numbers."""
        return self.example_gen is None and spans.has_fields(self.source[1])

    @property
    def spans_window(self) -> spans.Window:
        """The spans to read."""
        return spans.Window(self.window, self.missing == "skip", self.span, self.time_zone)


class Validate(SpecModel):
    """ExampleValidator, which can stop a run before it trains.

    A missing column, a gap where there was none and a wrong type stop a run, unless
    `anomalies` says otherwise. Other anomalies, such as a text that is not in the
    schema, are only shown.
    """

    anomalies: dict[FeatureName, Literal["fail", "warn"]] = Field(default_factory=dict)
    """Name of a feature, or `"*"` for all others -> `fail`, if each of its anomalies
    stops a run, or `warn`, if none does. Drift and skew above a threshold stop a run in
    any case."""
    drift: dict[FeatureName, Distance] = Field(default_factory=dict)
    """Name of a feature -> largest distance of its distribution to that of the last run
    that was not stopped, from 0 to 1; a larger one stops the run. For texts it is the
    largest difference between the shares of a value, for numbers the Jensen-Shannon
    divergence."""
    skew: dict[FeatureName, Distance] = Field(default_factory=dict)
    """Name of a feature -> largest distance between its distributions in the splits
    `train` and `eval`; a larger one stops the run."""
    stop_on_anomalies: bool = True
    """If false, no anomaly stops the run, and later runs are compared with its data; a
    pipeline parameter."""


class Transform(SpecModel):
    """TFX Transform.

    It computes features in the same way for training, evaluation and serving.
    """

    preprocessing_fn: str = "preprocessing_fn"
    """Name of the preprocessing function in the module."""


_NumShards = Annotated[int, Field(ge=0, le=100_000)]


class Shards(SpecModel):
    """Sharder, which writes examples as shards for the training processes."""

    num_shards: Annotated[
        _NumShards,
        BeforeValidator(lambda value: 0 if value == "auto" else value, json_schema_input_type=_NumShards | Literal["auto"]),
    ] = 0
    """Number of shards of each split; a pipeline parameter. `auto` or 0 chooses a
    number that suits the training processes and the data."""
    compression: Literal["none", "gzip"] | None = None
    """Compression of the shards. `gzip` makes them smaller and slower to read. Default:
    `none` for `build_model`; `gzip` for a `run_fn`, which may expect what TFX's
    Transform writes."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Seed of the order of the examples in the shards."""


class BaseModelSpec(SpecModel):
    """Model whose weights training starts from. Text alone is its path.

    Patterns are regular expressions for whole parts of the path of a layer or weight,
    such as `encoder/dense/kernel`.
    """

    path: Annotated[str, AfterValidator(_base_model)] = ""
    """`latest_blessed`, the last model of this pipeline that met its thresholds: the
    first run has none, and starts from scratch. Otherwise the path or address of a
    SavedModel, of a folder with numbered ones, or of a Keras file (`.keras`,
    `.weights.h5`). `-p base_model=PATH` replaces it for one run, or while a pipeline is
    compiled: a compiled one has it fixed. Empty starts from scratch. A `run_fn` gets it
    in `fn_args.base_model`."""
    freeze: list[str] = Field(default_factory=list)
    """Patterns of layers that are not trained, nor what is in them. A frozen
    BatchNormalization normalizes with its saved statistics."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Pattern for parts of the base model's paths -> their new name. The first one that
    matches a weight counts."""
    vocabularies: dict[str, str | FirstRow] = Field(default_factory=dict)
    """Pattern of an embedding, or of the layer whose outputs are classes ->
    `vocab_filename` of the vocabulary that its rows or outputs belong to: they are
    taken over entry by entry. `{user_id: 1}` in place of `user_id` says that its first
    entry has row 1, as in a model that looks up `ids + 1`."""
    mismatch: Literal["fail", "skip"] = "fail"
    """With `fail`, a base model that differs is refused, with a list of the
    differences; `skip` takes the weights that correspond, and leaves the others as
    `build_model` initialized them."""

    @model_validator(mode="after")
    def _check_patterns(self) -> "BaseModelSpec":
        _ = self.warm_start
        return self

    @property
    def warm_start(self) -> WarmStart:
        """Returns the settings without the path, as components take them."""
        return WarmStart(**self.model_dump(exclude={"path"}))


class Train(SpecModel):
    """Label, pipeline parameters and hyperparameters of the training."""

    NULLABLE: ClassVar[tuple[str, ...]] = ("label",)

    label: FeatureName | NamesByOutput | None = None
    """Name of the feature that the model predicts, after the transform; for several,
    name of an output of the model -> name of its label; `null` if the model computes
    its loss from the features alone. Required by `build_model`."""
    example_weight: FeatureName | NamesByOutput | None = None
    """Name of the feature, after the transform, with the weight of each example in the
    loss, weighted metrics and evaluation; or, if `label` names outputs, name of each
    output -> name of the weight for it. By default all examples weigh the same."""
    parameters: Parameters = Parameters()
    """Pipeline parameters and the pipeline's defaults for them."""
    hparams: dict[str, ScalarValue] = Field(default_factory=dict)
    """Hyperparameters of the module, in `context.hparams`. `-p name=value` replaces a
    value for one run. In a compiled pipeline they are one parameter, `hparams`, a JSON
    object as text."""
    base_model: Annotated[
        BaseModelSpec,
        BeforeValidator(
            lambda value: {"path": value} if isinstance(value, str) else value, json_schema_input_type=str | BaseModelSpec
        ),
    ] = BaseModelSpec()
    """Model whose weights training starts from: its path, or its path and how to start
    from it. By default, training starts from scratch."""
    custom_config: dict[str, Any] = Field(default_factory=dict)
    """Settings for a `run_fn`, in `fn_args.custom_config`."""

    def target_features(self) -> dict[str, str]:
        """Returns name of a label or weight -> the key that names it in the file."""
        return {name: f"trainer.{key}" for key in ("label", "example_weight") for name in names_in(getattr(self, key))}

    @field_validator("hparams")
    @classmethod
    def _check_names(cls, hparams: dict[str, Scalar]) -> dict[str, Scalar]:
        taken = sorted(set(hparams) & {*Parameters.model_fields, *SECTION_PARAMETERS, "base_model"})
        if taken:
            raise ValueError(f"{taken[0]!r} is a pipeline parameter; write it under trainer.parameters")
        return hparams


class Change(SpecModel):
    """Limits for the change of a metric since the latest blessed model."""

    absolute: FiniteFloat | None = None
    """Smallest allowed difference to the blessed model's value; the largest allowed one
    if lower is better."""
    relative: FiniteFloat | None = None
    """Like `absolute`, as a fraction of the magnitude of the blessed model's value."""
    higher_is_better: bool = True
    """True if larger values of the metric are better."""

    @model_validator(mode="after")
    def _some_bound(self) -> "Change":
        if self.absolute is None and self.relative is None:
            raise ValueError("write absolute, relative or both")
        return self


class Metric(SpecModel):
    """One metric, and the thresholds that a model has to meet to be pushed."""

    lower_bound: FiniteFloat | None = None
    """Smallest allowed value."""
    upper_bound: FiniteFloat | None = None
    """Largest allowed value."""
    change: Change | None = None
    """Allowed change since the latest blessed model. The first model meets it if the
    metric is finite."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the metric's class."""
    class_name: str | None = None
    """The metric's class, if `metrics` has another name for it, as for the same class
    on two outputs."""
    module: str | None = None
    """Dotted name of the module with the class, if it is neither Keras's nor TFMA's."""
    output_name: str | None = None
    """Output of the model that the metric is computed on; required if `label` names
    several."""

    @property
    def has_threshold(self) -> bool:
        """Returns True if a model can fail on this metric."""
        return any(value is not None for value in (self.lower_bound, self.upper_bound, self.change))


class Evaluate(SpecModel):
    """TFX Evaluator: metrics on held-out examples, and their thresholds."""

    NULLABLE: ClassVar[tuple[str, ...]] = ("label",)

    metrics: dict[str, Metric] = Field(min_length=1)
    """Name of a metric, which is a class of Keras or TFMA unless `class_name` says
    otherwise -> its thresholds and arguments."""
    label: FeatureName | NamesByOutput | None = None
    """Name of the label, or name of an output -> name of its label. Default:
    `trainer.label`."""
    slices: list[list[str]] = Field(default_factory=list)
    """Features to slice the examples by, such as `[[country], [country, device]]`;
    metrics are computed for all examples and for each slice. A slice has the value
    after the transform, or the text that the transform has replaced by an id."""
    splits: list[str] = Field(default=["eval"])
    """Splits to evaluate on."""
    preprocessing_functions: list[str] | None = None
    """Signatures of the model that turn examples into features and label; required only
    for a `run_fn`."""

    @field_validator("metrics")
    @classmethod
    def _thresholds_on_one_number(cls, metrics: dict[str, Metric]) -> dict[str, Metric]:
        for name, metric in metrics.items():
            if metric.has_threshold:
                metric_config.check_one_number(metric.class_name or name, metric.config)
        return metrics

    @property
    def has_thresholds(self) -> bool:
        """Returns True if a model can fail on any metric."""
        return any(metric.has_threshold for metric in self.metrics.values())


class Push(SpecModel):
    """TFX Pusher, which copies a model that met its thresholds to a serving folder."""

    directory: str | None = None
    """Folder to copy to, with a numbered subfolder for each model. Default:
    `<root>/serving`, which is refused where another pipeline pushes to it."""
    keep: int | None = Field(None, ge=1)
    """How many versions stay in the folder: after a push, older ones are removed.
    Default: all."""


Outcome = Literal["succeeded", "failed", "stopped", "not_blessed", "recovered"]


class Notify(SpecModel):
    """Notifications about how runs end, on this machine and on Kubeflow Pipelines.

    A run that somebody has ended sends none.
    """

    # Not `on`, which YAML 1.1 reads as true.
    when: list[Outcome] = Field(default=["failed", "stopped", "not_blessed", "recovered"], min_length=1)
    """Outcomes to send a notification for: `failed` (a component failed, or the run was
    refused), `stopped` (its data were rejected), `not_blessed` (the model did not meet
    its thresholds), `recovered` (it succeeded, and the run before it did not), or
    `succeeded`."""
    urls: str
    """Name of an environment variable with the addresses, in the form of
    [apprise](https://github.com/caronc/apprise), separated by spaces or line
    breaks. On Kubeflow Pipelines, a key of `targets.kubeflow.secrets` sets it."""

    @field_validator("urls")
    @classmethod
    def _name_of_a_variable(cls, urls: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", urls):
            raise ValueError(
                "is not the name of an environment variable, such as NOTIFY_URLS; addresses contain passwords, "
                "which do not belong in this file"
            )
        return urls


class LocalSettings(SpecModel):
    """Settings of runs on this machine."""

    root: str | None = None
    """Folder for artifacts, metadata, logs and models. Default: `runs/<name>` in the
    working folder."""


class Targets(SpecModel):
    """Settings of each platform that a pipeline runs on."""

    local: LocalSettings = LocalSettings()
    """This machine."""
    kubeflow: KubeflowSettings | None = None
    """Kubeflow Pipelines."""
    vertex: VertexSettings | None = None
    """Vertex AI."""


class PipelineSpec(SpecModel):
    """A TFX pipeline in which distributed training is a parameter."""

    name: str = Field(pattern=NAME_PATTERN)
    """Name of the pipeline: lower-case letters, digits and hyphens."""
    module: str
    """The user's code: a Python file, relative to the YAML file, or the dotted name of
    an installed module. It has `build_model(context)` or a TFX `run_fn(fn_args)`, and
    `preprocessing_fn(inputs)` if there is a transform."""
    data: Data
    """Source of the examples."""
    # Not `validate`, which is a method of pydantic's models.
    validation: Validate = Field(default=Validate(), alias="validate")
    """What stops a run before it trains: missing columns, wrong types, and drift."""
    transform: Transform | None = None
    """Settings of Transform; `{}` for the defaults. Without this key, the pipeline
    trains on the examples as they are."""
    shards: Shards = Shards()
    """Settings of the Sharder, which writes the examples to train on."""
    trainer: Train
    """Settings of the Trainer."""
    tune: search_lib.Search | None = None
    """Settings of the Tuner, whose best hyperparameters the Trainer gets. Without this
    key, the Trainer trains with those of `trainer.hparams`."""
    evaluate: Evaluate | None = None
    """Settings of Evaluator. Without this key, no model is evaluated; with `push`,
    every model is pushed."""
    push: Push | None = None
    """Settings of Pusher. Without this key, no model is pushed."""
    notify: Notify | None = None
    """Notifications about how runs end. Without this key, none are sent."""
    beam: Beam = Beam()
    """Where the Beam pipelines of all components run."""
    resources: dict[str, MachineSpec] = Field(default_factory=dict)
    """Machines on Kubeflow and Vertex AI, by component. `Trainer` is the machine of
    each training process, those of trials included, `ParameterServer` that of parameter
    servers and their coordinator, `TrainerStep` that of the Trainer's and the Tuner's
    step if training runs on other machines (default: 500m CPU, 1536Mi), `default` that
    of all components without an entry of their own."""
    targets: Targets = Targets()
    """Settings for each platform that the pipeline runs on."""

    @model_validator(mode="after")
    def _sections_fit(self) -> "PipelineSpec":
        if self.tune:
            search_lib.check(self.tune, self.trainer.hparams)
            if "Tuner" in self.resources:
                raise ValueError(
                    "resources.Tuner: trials train on the machines of the Trainer; write resources.Trainer instead"
                )
        settings = {
            "tune.objective": self.tune and self.tune.objective.startswith("val_"),
            "validate.skew": self.validation.skew,
        }
        for setting, needs_it in settings.items():
            if needs_it and "eval" not in self.data.splits:
                raise ValueError(
                    f"{setting}: needs a split 'eval', and data.splits has {', '.join(self.data.splits)}; write a split eval"
                )
        if self.evaluate:
            self._check_evaluation(self.evaluate)
        return self._check_base_model()

    def _check_base_model(self) -> "PipelineSpec":
        if self.trainer.base_model.path == LATEST_BLESSED and not (self.evaluate and self.evaluate.has_thresholds):
            raise ValueError(
                "trainer: base_model is latest_blessed, but no model of this pipeline is ever blessed, because evaluate has "
                "no thresholds; write one, or the path of a model"
            )
        return self

    def _check_evaluation(self, evaluate: Evaluate) -> None:
        missing = [split for split in evaluate.splits if split not in self.data.splits]
        if missing:
            raise ValueError(f"evaluate: there is no split {missing[0]!r}; data.splits has {', '.join(self.data.splits)}")
        label = evaluate.label or self.trainer.label
        if label is None:
            raise ValueError("evaluate: the name of the label is missing; write evaluate.label or trainer.label")
        outputs = list(label) if isinstance(label, dict) else []
        for name, metric in evaluate.metrics.items():
            output = metric.output_name
            if output not in (outputs if len(outputs) > 1 else [None, *outputs]):
                problem = f"there is no label for the output {output!r}" if output else "no output_name"
                remedy = f"write one of {', '.join(outputs)}" if outputs else "leave it out: label names no outputs"
                raise ValueError(f"evaluate: metrics.{name}: {problem}; {remedy}")

    @field_validator("module")
    @classmethod
    def _absolute(cls, module: str, info: ValidationInfo) -> str:
        if not module.endswith(".py"):
            return module
        # A symbolic link to a module is not resolved: the module is imported by the
        # link's name, and its imports start from the link's folder.
        name = module.rpartition("/")[2]
        return str(Path(_input_path(module.removesuffix(name) or ".", info)) / name)

    def with_parameters(self, values: dict[str, Scalar]) -> "PipelineSpec":
        """Returns the pipeline with other values of parameters and hyperparameters.

        `train_steps` and `epochs` replace each other.

        ```python
        spec.with_parameters({"strategy": "mirrored", "learning_rate": 0.1})
        ```

        Args:
          values: Name -> value.

        Raises:
          pydantic.ValidationError: A value is not allowed, or a name is neither a
            parameter nor a hyperparameter.
        """
        parameters = self.trainer.parameters.model_dump(exclude_unset=True)
        for name, other in (("train_steps", "epochs"), ("epochs", "train_steps")):
            if values.get(name) and not values.get(other):
                parameters.pop(other, None)
        sections: dict[str, Any] = {}
        for name, section in SECTION_PARAMETERS.items():
            if name in values:
                before = sections.get(section, getattr(self, section))
                sections[section] = type(before).model_validate({**before.model_dump(), name: values[name]})
        trainer_values = {}
        if "base_model" in values:  # its path; without one, nothing of the base model is left
            start = self.trainer.base_model.model_dump() if values["base_model"] else {}
            changed = Train.model_validate({"base_model": {**start, "path": values["base_model"]}})
            trainer_values["base_model"] = changed.base_model
        elsewhere = {*self.trainer.hparams, *SECTION_PARAMETERS, *trainer_values}
        parameters.update({name: value for name, value in values.items() if name not in elsewhere})
        hparams = {name: _like(value, values.get(name, value)) for name, value in self.trainer.hparams.items()}
        trainer = self.trainer.model_copy(
            update={"parameters": Parameters.model_validate(parameters), "hparams": hparams, **trainer_values}
        )
        if self.tune:
            search_lib.check(self.tune, hparams)
        return self.model_copy(update={"trainer": trainer, **sections})._check_base_model()


def _like(default: Scalar, value: Scalar) -> Scalar:
    """Returns a hyperparameter's new value, as a float if its default is one."""
    return float(value) if type(default) is float and type(value) is int else value

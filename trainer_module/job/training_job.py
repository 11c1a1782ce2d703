"""Defines TrainingJob, the JSON document that describes one training to its processes.

All processes of a cluster read the same document; TF_CONFIG tells each process which
one it is. The Trainer component writes the document, and every launcher starts
`python -m tfx_distribute.trainer_module --job FILE`, which reads it. On one machine, a
fork of the fork server calls `process.main` instead.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter

from tfx_distribute import __version__
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.labels import FeatureNames
from tfx_distribute.trainer_module.job.parameters import Distribution, FaultTolerance, InputOptions, TrainingOptions
from tfx_distribute.trainer_module.job.time_use import TimeUse
from tfx_distribute.trainer_module.job.warm_start import WarmStart

LabelRanges = Mapping[str, Mapping[str, tuple[float, float]]]
"""Name of a label -> name of a split -> the label's smallest and largest value."""


@dataclass(frozen=True)
class UserModule:
    """The function of the user's module, and how to import it.

    Attributes:
      function: Dotted path of the function to call, such as `model.build_model` or
        `package.module.run_fn`.
      search_path: Folders to import from, ahead of the Python installation's own.
    """

    function: str
    search_path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Split:
    """One split of the examples.

    Attributes:
      files: TFRecord files of serialized tf.Examples, gzipped if their names end in
        `.gz`.
      num_examples: Number of examples in all files together.
      num_bytes: Size of all files together, in bytes.
      sharded: True if the files are shards: their numbers of examples differ by at most
        one, the larger ones first. Each process can then read files of its own.
    """

    files: tuple[str, ...]
    num_examples: int
    num_bytes: int = 0
    sharded: bool = False


@dataclass(frozen=True)
class TrainingData:
    """The examples that `build_model`'s model is trained and evaluated on.

    Attributes:
      train: Split to train on.
      eval: Split to evaluate on after each epoch; None for no evaluation.
      label: Name of the feature that the model predicts; or, for several, name of an
        output of the model -> name of its label. None for a model that computes its
        loss from the features alone.
      example_weight: Name of the feature with the weight of each example; or name of an
        output -> name of the weight of its loss. None if all weigh the same.
      transform_graph: Folder of the transform graph that made the examples; None for
        untransformed examples.
      schema: File with the schema of the examples; required without a transform graph.
      label_ranges: The values of labels in the splits that a Sharder has written, those
        to train on first.
    """

    train: Split
    eval: Split | None
    label: FeatureNames | None
    transform_graph: str | None
    schema: str | None
    example_weight: FeatureNames | None = None
    label_ranges: LabelRanges = field(default_factory=dict)


@dataclass(frozen=True)
class RunFn:
    """The arguments of a TFX `run_fn`, in TFX's own JSON; see `run_fn.py`.

    Attributes:
      inputs: Input artifacts.
      exec_properties: Execution properties that `FnArgs` is made from.
      hyperparameters: Values of a Tuner's `best_hyperparameters`; None without a Tuner.
      num_examples: Number of examples of each split; None without statistics.
    """

    inputs: str
    exec_properties: Mapping[str, Any]
    hyperparameters: Mapping[str, Any] | None
    num_examples: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Outputs:
    """Where the chief writes the results.

    Attributes:
      serving_model_dir: Folder for the SavedModel; empty to export none.
      model_run_dir: Folder for TensorBoard logs and other files of the run.
      result_file: File for the `TrainingResult`, in JSON.
      checkpoint_dir: Folder for the training state, the same for every attempt with the
        same inputs; empty to save none.
      saves_end: True to save the state at the end of the last epoch too, from which a
        training with more epochs continues.
    """

    serving_model_dir: str
    model_run_dir: str
    result_file: str
    checkpoint_dir: str = ""
    saves_end: bool = False


@dataclass(frozen=True)
class TrainingJob:
    """One training, as all of its processes see it.

    Attributes:
      data: Examples to train on; None for a `run_fn`, which reads its own.
      hparams: The user's hyperparameters.
      run_fn: Arguments of a `run_fn`; None for `build_model`.
      base_model: Path or address of the model whose weights training starts from; empty
        for the weights that `build_model` initializes.
      warm_start: How training starts from the base model.
      raw_examples: TFRecord files with raw examples to ask the exported model; empty
        if there are none.
      version: Version of tfx-distribute that wrote the document.
    """

    module: UserModule
    data: TrainingData | None
    distribution: Distribution
    training_options: TrainingOptions
    outputs: Outputs
    hparams: Mapping[str, Any] = field(default_factory=dict)
    input_options: InputOptions = field(default_factory=InputOptions)
    fault_tolerance: FaultTolerance = field(default_factory=FaultTolerance)
    run_fn: RunFn | None = None
    base_model: str = ""
    warm_start: WarmStart = field(default_factory=WarmStart)
    raw_examples: tuple[str, ...] = ()
    version: str = __version__

    def to_json(self) -> str:
        """Returns the document.

        Infinite and NaN hyperparameters become the constants `Infinity`, `-Infinity`
        and `NaN`, which Python's `json` writes and reads; pydantic would write null.
        """
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str | bytes) -> "TrainingJob":
        """Reads the document, which has to be of this version of tfx-distribute."""
        version = json.loads(text).get("version")
        if version != __version__:
            raise ConfigurationError(
                f"image: this process has tfx-distribute {__version__}, but the step that started it has "
                f"{version or 'another'}; run both with the same image, under a tag that is not written again"
            )
        return _JOB.validate_json(text)


@dataclass(frozen=True)
class BestEvaluation:
    """The evaluation whose weights are exported, with `export_best`.

    Attributes:
      metric: Name of the metric.
      epoch: Number of the epoch that ended with its best value, from 1.
      step: Training steps that were done.
      metrics: Name -> value of all metrics of this epoch that are finite.
    """

    metric: str
    epoch: int
    step: int
    metrics: Mapping[str, float]

    @property
    def value(self) -> float:
        """Returns the best value of the metric."""
        return self.metrics[self.metric]


@dataclass(frozen=True)
class WarmStartResult:
    """How much of a base model training started from.

    Attributes:
      weights_taken: Number of weights (kernels, biases, ...) that it gave the model.
      weights_skipped: Number of the model's weights that it did not give.
      entries_taken: Number of entries whose rows it gave, in all vocabularies that
        `vocabularies` names.
      entries_new: Number of those entries that its vocabularies do not have.
      reordered: Files of vocabularies that `vocabularies` does not name, and whose
        order has changed since the base model.
    """

    weights_taken: int
    weights_skipped: int
    entries_taken: int = 0
    entries_new: int = 0
    reordered: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training, written by the chief.

    Attributes:
      num_replicas: Number of replicas that trained in step.
      global_batch_size: Examples per training step over all replicas; 0 for a `run_fn`,
        which chooses its own.
      train_steps: Number of training steps taken; 0 for a `run_fn`.
      seconds: Wall time of the training, without start-up and export.
      metrics: Last value of each training metric and each `val_` metric.
      best: The evaluation whose weights are exported; None for the last weights.
      warm_start: How much of the base model was used; None without one.
      time_use: How the processes spent the time; None for a `run_fn`.
    """

    # An infinite or NaN loss is a result too.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    num_replicas: int
    global_batch_size: int
    train_steps: int
    seconds: float
    metrics: Mapping[str, float]
    best: BestEvaluation | None = None
    warm_start: WarmStartResult | None = None
    time_use: TimeUse | None = None

    @property
    def unusable(self) -> str:
        """Why the exported model cannot be used; empty if the losses are finite."""
        for name in ("loss", "val_loss"):
            loss = self.metrics.get(name, 0.0)
            if not (math.isfinite(loss) or self.best):
                return (
                    f"the {name} is {loss:g} at the end of the training, so the model cannot be used and is not pushed; "
                    "lower the learning rate, give the optimizer a global_clipnorm, or look for values in the data that are "
                    "not finite"
                )
        return ""

    def to_json(self) -> str:
        """Returns the document."""
        return _RESULT.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "TrainingResult":
        """Reads the document."""
        return _RESULT.validate_json(text)


def keras_environment(keras_version: int) -> dict[str, str]:
    """Returns the environment variables with which TensorFlow imports this Keras.

    Source: https://www.tensorflow.org/guide/keras#tensorflow_keras_2
    """
    return {"TF_USE_LEGACY_KERAS": "1" if keras_version == 2 else "0", "KERAS_BACKEND": "tensorflow"}


_JOB = TypeAdapter(TrainingJob)
_RESULT = TypeAdapter(TrainingResult)

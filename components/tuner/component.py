"""Defines the Tuner component, whose trials are distributed trainings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs
from typing_extensions import Unpack

from tfx_distribute.components.trainer import component as trainer_component
from tfx_distribute.components.trainer.component import Text, TrainerSpec
from tfx_distribute.components.tuner import executor
from tfx_distribute.components.tuner import search as search_lib
from tfx_distribute.components.tuner.search import Search
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.warm_start import WarmStart

if TYPE_CHECKING:  # generated: a stub only
    from tfx_distribute.components.trainer.arguments import TrainerArguments


class TunerSpec(types.ComponentSpec):
    """The outputs of TFX's Tuner, and the parameters of our Trainer."""

    INPUTS = standard_component_specs.TunerSpec.INPUTS
    OUTPUTS = standard_component_specs.TunerSpec.OUTPUTS
    PARAMETERS = {  # noqa: RUF012 (as TFX declares them)
        **TrainerSpec.PARAMETERS,
        "tune": component_spec.ExecutionParameter(type=str),
    }


class Tuner(base_component.BaseComponent):
    """Searches for the hyperparameters of a `build_model(context)`.

    Takes the arguments of the Trainer that it searches for; each trial is a training as
    that Trainer's, with other values and without a model.

    ```python
    tuner = Tuner(
        Search(
            objective="val_accuracy",
            max_trials=8,
            space={"learning_rate": ValueRange(min=1e-4, max=0.1, sampling="log")},
        ),
        module_file="model.py",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        label="digit",
        hparams={"learning_rate": 0.001},
        epochs=20,
    )
    trainer = Trainer(..., hyperparameters=tuner.outputs["best_hyperparameters"])
    ```

    Component `outputs` contains:
     - `best_hyperparameters`: Channel of type `standard_artifacts.HyperParameters`, in
       KerasTuner's format, as of TFX's Tuner.
     - `tuner_results`: Channel of type `standard_artifacts.TunerResults`: a table of
       all trials, and their TensorBoard logs.
    """

    SPEC_CLASS = TunerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        search: Search,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel | None = None,
        schema: types.BaseChannel | None = None,
        base_model: types.BaseChannel | None = None,
        module_file: Text | None = None,
        train_args: trainer_pb2.TrainArgs | dict[str, Any] | data_types.RuntimeParameter | None = None,
        eval_args: trainer_pb2.EvalArgs | dict[str, Any] | data_types.RuntimeParameter | None = None,
        *,
        build_model: Text | None = None,
        module_fingerprint: str | None = None,
        label: Text | Mapping[str, str] | None = None,
        example_weight: Text | Mapping[str, str] | None = None,
        hparams: dict[str, Any] | data_types.RuntimeParameter | None = None,
        checkpoint_dir: Text | None = None,
        launcher: str | None = None,
        warm_start: WarmStart | None = None,
        **parameters: "Unpack[TrainerArguments]",
    ):
        """Constructs a Tuner component.

        Args:
          search: What to search for, and how.
          examples: Channel of `standard_artifacts.Examples` to train on, raw or
            transformed.
          transform_graph: Channel of `standard_artifacts.TransformGraph`; required for
            transformed examples. Leave it out for raw ones.
          schema: Channel of `standard_artifacts.Schema`; needed if there is no
            transform graph.
          base_model: Channel of `standard_artifacts.Model` that each trial starts from.
          module_file: Python file with `build_model`. Write either it or `build_model`.
          train_args: Splits to train on and number of training steps, as of the
            Trainer.
          eval_args: Splits to evaluate on and number of batches, as of the Trainer.
          build_model: Dotted path of a `build_model(context)`.
          module_fingerprint: Any text that changes with the module behind
            `build_model`, so that TFX's cache notices.
          label: Name of the feature that the model predicts, or names of several, as of
            the Trainer.
          example_weight: Name of the feature with the weight of each example.
          hparams: All hyperparameters of `build_model` with their defaults; those that
            the search names get other values.
          checkpoint_dir: Folder for the states of searches and their trials, on storage
            that all machines of the cluster share. Default: `.checkpoints` next to the
            component's outputs.
          launcher: Where to train, as of the Trainer.
          warm_start: How each trial starts from `base_model`, as of the Trainer.
          **parameters: Pipeline parameters, each a value or a RuntimeParameter; see
            docs/parameters.md.

        Raises:
          ConfigurationError: The arguments contradict each other. The value of a
            RuntimeParameter is checked when the component runs.
          TypeError: There is no such argument.
        """
        if bool(module_file) == bool(build_model):
            raise ConfigurationError("Tuner: exactly one of module_file and build_model must be supplied")
        if trainer_component.function_kind(module_file, None, build_model) == "run_fn":
            raise ConfigurationError(
                "Tuner: the results of a run_fn have no metrics to compare; write build_model, or use TFX's own Tuner"
            )
        arguments = trainer_component.spec_arguments(
            "Tuner",
            "build_model",
            parameters,
            examples=examples,
            transform_graph=transform_graph,
            schema=schema,
            base_model=base_model,
            module_file=module_file,
            build_model=build_model,
            module_fingerprint=module_fingerprint,
            checkpoint_dir=checkpoint_dir,
            launcher=launcher,
            train_args=train_args,
            eval_args=eval_args,
            label=label,
            example_weight=example_weight,
            hparams=hparams,
            warm_start=warm_start,
        )
        if not isinstance(hparams, data_types.RuntimeParameter):
            search_lib.check(search, hparams or {})
        spec = TunerSpec(
            **arguments,
            tune=search.model_dump_json(),
            best_hyperparameters=types.Channel(type=standard_artifacts.HyperParameters),
            tuner_results=types.Channel(type=standard_artifacts.TunerResults),
        )
        super().__init__(spec=spec)
        trainer_component.package_module(self)

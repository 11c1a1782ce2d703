"""Defines the Trainer component: TFX's Trainer with parameters for distribution."""

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import Message
from tfx import types
from tfx.components.example_gen.component import FileBasedExampleGen, QueryBasedExampleGen
from tfx.components.transform.component import Transform
from tfx.components.util import udf_utils
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs
from tfx.utils import proto_utils
from typing_extensions import Unpack

from tfx_distribute.components.trainer import executor, job_builder
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import labels, strategy_table
from tfx_distribute.trainer_module.job.parameters import GROUPS, declarations
from tfx_distribute.trainer_module.job.warm_start import WarmStart
from tfx_distribute.trainer_module.user_code import module_loader

if TYPE_CHECKING:  # generated: a stub only
    from tfx_distribute.components.trainer.arguments import TrainerArguments

Text: TypeAlias = str | data_types.RuntimeParameter
# TFX's execution properties have no bool, so a flag is an int, 0 or 1.
_PROPERTY_TYPES = {each.name: int if each.type is bool else each.type for each in declarations(*GROUPS)}


class TrainerSpec(standard_component_specs.TrainerSpec):
    """TFX's TrainerSpec with pipeline parameters as further execution properties."""

    INPUTS = {  # noqa: RUF012 (as TFX declares them)
        **standard_component_specs.TrainerSpec.INPUTS,
        # TFX 1.16 does not have it.
        standard_component_specs.STATISTICS_KEY: component_spec.ChannelParameter(
            type=standard_artifacts.ExampleStatistics, optional=True
        ),
    }
    PARAMETERS = {  # noqa: RUF012 (as TFX declares them)
        **standard_component_specs.TrainerSpec.PARAMETERS,
        **{
            name: component_spec.ExecutionParameter(type=str, optional=True)
            for name in (
                "build_model",
                "module_fingerprint",
                "label",
                "example_weight",
                "hparams",
                "warm_start",
                "checkpoint_dir",
                "launcher",
            )
        },
        # 1 with a base_model, which a Resolver may not find in the first run.
        "has_base_model": component_spec.ExecutionParameter(type=int, optional=True),
        **{name: component_spec.ExecutionParameter(type=kind, optional=True) for name, kind in _PROPERTY_TYPES.items()},
    }


class Trainer(base_component.BaseComponent):
    """Trains a model under the `tf.distribute` strategy that a parameter names.

    Takes the arguments of `tfx.components.Trainer` under the same names. A module with
    a TFX `run_fn(fn_args)` works unchanged in one process; in several, it takes its
    strategy from `get_strategy()`. A module with `build_model(context)` leaves reading,
    training, export and distribution to the component.

    ```python
    trainer = Trainer(
        module_file="model.py",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        label="digit",
        strategy="multi_worker_mirrored",
        num_workers=RuntimeParameter("num_workers", int, default=2),
        epochs=20,
    )
    ```

    Component `outputs` contains:
     - `model`: Channel of type `standard_artifacts.Model`, the trained SavedModel. Its
       custom properties hold the strategy, the number of workers, of replicas and of
       training steps, and the global batch size.
     - `model_run`: Channel of type `standard_artifacts.ModelRun`, the TensorBoard logs.
    """

    SPEC_CLASS = TrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        examples: types.BaseChannel | None = None,
        transformed_examples: types.BaseChannel | None = None,
        transform_graph: types.BaseChannel | None = None,
        schema: types.BaseChannel | None = None,
        base_model: types.BaseChannel | None = None,
        hyperparameters: types.BaseChannel | None = None,
        module_file: Text | None = None,
        run_fn: Text | None = None,
        train_args: trainer_pb2.TrainArgs | dict[str, Any] | data_types.RuntimeParameter | None = None,
        eval_args: trainer_pb2.EvalArgs | dict[str, Any] | data_types.RuntimeParameter | None = None,
        custom_config: dict[str, Any] | data_types.RuntimeParameter | None = None,
        custom_executor_spec: executor_spec.ExecutorSpec | None = None,
        *,
        build_model: Text | None = None,
        module_fingerprint: str | None = None,
        label: Text | Mapping[str, str] | None = None,
        example_weight: Text | Mapping[str, str] | None = None,
        hparams: dict[str, Any] | data_types.RuntimeParameter | None = None,
        checkpoint_dir: Text | None = None,
        launcher: str | None = None,
        warm_start: WarmStart | None = None,
        statistics: types.BaseChannel | None = None,
        **parameters: "Unpack[TrainerArguments]",
    ):
        """Constructs a Trainer component.

        Args:
          examples: Channel of `standard_artifacts.Examples` to train on, raw or
            transformed.
          transformed_examples: Deprecated by TFX; use `examples`.
          transform_graph: Channel of `standard_artifacts.TransformGraph`; required for
            transformed examples. With `build_model`, leave it out for raw ones.
          schema: Channel of `standard_artifacts.Schema`; `build_model` needs it if
            there is no transform graph.
          base_model: Channel of `standard_artifacts.Model` to start from, such as that
            of a Resolver of the latest blessed model, or of an Importer. Without a
            model in it, training starts from scratch. A `run_fn` gets it in
            `fn_args.base_model`.
          hyperparameters: Channel of `standard_artifacts.HyperParameters` from a Tuner.
            Its values replace those of the same names in `hparams`.
          module_file: Python file with `build_model` or `run_fn`. If it has both,
            `build_model` trains if it is defined there and takes one argument. Write
            exactly one of `module_file`, `run_fn` and `build_model`.
          run_fn: Dotted path of a TFX `run_fn(fn_args)`.
          train_args: Splits to train on (default: `train`) and, in place of
            `train_steps` or `epochs`, number of training steps.
          eval_args: Splits to evaluate on (default: `eval`) and, in place of
            `eval_steps`, number of batches.
          custom_config: Settings for a `run_fn`, in `fn_args.custom_config`.
          custom_executor_spec: Executor to use instead of the component's own, as in
            TFX.
          build_model: Dotted path of a `build_model(context)`; see
            `trainer_module.ModelContext`.
          module_fingerprint: Any text that changes with the module behind `run_fn` or
            `build_model`, so that TFX's cache notices. TFX does that itself for
            `module_file`.
          label: Name of the feature that the model of `build_model` predicts; for
            several, name of an output -> name of its label; None if the model computes
            its loss from the features alone.
          example_weight: Name of the feature with the weight of each example, for
            `build_model`; for several labels also name of each output -> name of the
            weight for it. By default all examples weigh the same.
          hparams: Hyperparameters for `build_model`, in `context.hparams`; as a
            RuntimeParameter, a JSON object. Values within it cannot be
            RuntimeParameters.
          checkpoint_dir: Folder for training states, on storage that all machines of
            the cluster share. Each run keeps its state in a subfolder named after its
            inputs until it has ended successfully. Default: `.checkpoints` next to the
            component's outputs.
          launcher: Where to train, as `launchers.registry.to_json` writes it. By
            default, training processes run on the executor's machine.
          warm_start: How `build_model` starts from `base_model`: layers to freeze, new
            names, vocabularies. By default all weights have to correspond.
          statistics: Channel of `standard_artifacts.ExampleStatistics`, for
            `fn_args.num_examples` of a `run_fn`: name of a split -> its number of
            examples.
          **parameters: Pipeline parameters, each a value or a RuntimeParameter; see
            docs/parameters.md.

        Raises:
          ConfigurationError: The arguments contradict each other. The value of a
            RuntimeParameter is checked when the component runs.
          TypeError: There is no such argument.
        """
        if sum(map(bool, (module_file, run_fn, build_model))) != 1:
            raise ConfigurationError("Trainer: exactly one of module_file, run_fn and build_model must be supplied")
        if bool(examples) == bool(transformed_examples):
            raise ConfigurationError("Trainer: exactly one of examples and transformed_examples must be supplied")
        if transformed_examples and not transform_graph:
            raise ConfigurationError("Trainer: transformed_examples needs transform_graph")
        arguments = spec_arguments(
            "Trainer",
            function_kind(module_file, run_fn, build_model),
            parameters,
            examples=examples or transformed_examples,
            transform_graph=transform_graph,
            schema=schema,
            base_model=base_model,
            hyperparameters=hyperparameters,
            statistics=statistics,
            module_file=module_file,
            run_fn=run_fn,
            build_model=build_model,
            module_fingerprint=module_fingerprint,
            checkpoint_dir=checkpoint_dir,
            launcher=launcher,
            train_args=train_args,
            eval_args=eval_args,
            label=label,
            example_weight=example_weight,
            hparams=hparams,
            custom_config=custom_config,
            warm_start=warm_start,
        )
        spec = TrainerSpec(
            **arguments,
            model=types.Channel(type=standard_artifacts.Model),
            model_run=types.Channel(type=standard_artifacts.ModelRun),
        )
        super().__init__(spec=spec, custom_executor_spec=custom_executor_spec)
        package_module(self)


def spec_arguments(component: str, kind: str | None, parameters: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
    """Returns the checked arguments of a TrainerSpec or a TunerSpec.

    `component` is the name of the component's class, `kind` that of `function_kind`,
    `parameters` are pipeline parameters, and `arguments` the others.
    """
    for name in parameters:
        if name not in _PROPERTY_TYPES:
            raise TypeError(f"{component}.__init__() got an unexpected keyword argument {name!r}")
    values = {name: int(value) if isinstance(value, bool) else value for name, value in parameters.items()}
    given = {"custom_config": None, **arguments}
    properties = {
        **values,
        "label": labels.to_text(given["label"]),
        "example_weight": labels.to_text(given["example_weight"]),
        "custom_config": _to_json("custom_config", given["custom_config"]),
        "hparams": _to_json("hparams", given["hparams"] or {}),
        "has_base_model": 1 if given["base_model"] else None,
        "warm_start": (given["warm_start"] and given["warm_start"].to_json()) or None,
        "train_args": _to_message(given["train_args"], trainer_pb2.TrainArgs),
        "eval_args": _to_message(given["eval_args"], trainer_pb2.EvalArgs),
    }
    _check_properties(properties, kind, given)
    if kind == "build_model" and given["transform_graph"]:
        _check_transformed(given["examples"], given["transform_graph"])
    return {**given, **properties}


def package_module(component: base_component.BaseComponent) -> None:
    """Has the module file travel to remote runners, as in TFX's Trainer.

    It travels as a wheel that is named after its content.
    """
    if udf_utils.should_package_user_modules():
        udf_utils.add_user_module_dependency(
            component, standard_component_specs.MODULE_FILE_KEY, standard_component_specs.MODULE_PATH_KEY
        )


def _to_json(name: str, values: dict[str, Any] | data_types.RuntimeParameter | None) -> Text:
    """Returns an argument as JSON, and a RuntimeParameter for all of it as it is."""
    if isinstance(values, data_types.RuntimeParameter):
        return values
    try:
        return json.dumps(values, sort_keys=True)
    except TypeError as error:
        raise ConfigurationError(
            f"{name}: {error}; write texts, numbers, lists and maps, which are fixed when the pipeline is compiled, or "
            f"{name}=RuntimeParameter('{name}', str) for a JSON object with all of them"
        ) from error


def _to_message(value: Any, kind: type[Message]) -> Any:
    """Returns a message for a dict of its fields or None; other values stay."""
    return json_format.ParseDict(value or {}, kind()) if value is None or isinstance(value, Mapping) else value


def _check_transformed(examples: types.BaseChannel, transform_graph: types.BaseChannel) -> None:
    """Checks that a `build_model` gets no raw examples along with a transform graph.

    The model would train on raw features, while its serving signature transforms them.
    A graph that is not of a Transform in this pipeline may belong to files of
    transformed examples.
    """
    producer = getattr(examples, "producer_component", None)
    is_transformed = isinstance(getattr(transform_graph, "producer_component", None), Transform)
    if is_transformed and isinstance(producer, FileBasedExampleGen | QueryBasedExampleGen):
        raise ConfigurationError(
            f"examples: those of {producer.id} are raw, but the exported model applies transform_graph; write "
            'examples=transform.outputs["transformed_examples"], or leave transform_graph out'
        )


def function_kind(module_file: Text | None, run_fn: Text | None, build_model: Text | None) -> str | None:
    """Returns `run_fn` or `build_model`; None if that is only known at run time."""
    if not module_file:
        return "run_fn" if run_fn else "build_model"
    if isinstance(module_file, str) and os.path.isfile(module_file):
        return module_loader.training_function(module_loader.top_level_names(module_file), module_file)
    return None


def _check_properties(properties: dict[str, Any], kind: str | None, inputs: Mapping[str, Any]) -> None:
    """Checks what is known before the pipeline runs.

    Combinations of pipeline parameters are only checked if none of them is a
    RuntimeParameter.
    """
    known = {
        name: proto_utils.proto_to_json(value) if isinstance(value, Message) else value
        for name, value in properties.items()
        if not isinstance(value, data_types.RuntimeParameter)
    }
    unknown = properties.keys() - known.keys()
    parameters = job_builder.training_parameters(known)
    if unknown <= {"custom_config", "hparams", "label", "example_weight", "train_args", "eval_args"}:
        strategy_table.check(*parameters)
    if kind == "build_model" and not unknown & {"label", "example_weight", "class_weight"}:
        job_builder.read_labels(known)
    if kind:
        inputs = {name: inputs.get(name) for name in ("base_model", "statistics")}
        job_builder.check_function(kind, parameters, known, inputs)

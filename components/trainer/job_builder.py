"""What TFX hands to the Trainer's executor -> the `TrainingJob`. Reads metadata and counts examples; starts nothing."""

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import Field, fields, replace
from typing import Any

from absl import logging
from google.protobuf import json_format
from tfx import types
from tfx.components.util import udf_utils
from tfx.dsl.io import fileio
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, path_utils, proto_utils

from tfx_distribute.components.trainer import input_splits, run_identity
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import shard_plan, strategy_info, strategy_table
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    FaultTolerance,
    InputOptions,
    Outputs,
    RunFn,
    TrainingData,
    TrainingJob,
    TrainingOptions,
    UserModule,
)
from tfx_distribute.trainer_module.user_code import function_settings
from tfx_distribute.trainer_module.user_code import module_loader as module_lib

Artifacts = dict[str, list[types.Artifact]]

RESULT_FILE = "training_result.json"
CHECKPOINTS = ".checkpoints"  # beside the folders of the component's outputs


def property_type(field: Field[Any]) -> type:
    """The type of the execution property of a parameter: TFX's RuntimeParameters know no bool."""
    return int if field.type is bool else field.type  # type: ignore[return-value]  # the annotation is a type


def training_parameters(parameters: Mapping[str, Any]) -> tuple[Distribution, TrainingOptions, InputOptions, FaultTolerance]:
    """The Trainer's parameters, with defaults for missing values, and `auto` resolved."""

    def pick(dataclass: type) -> Any:
        given = [field for field in fields(dataclass) if parameters.get(field.name) is not None]
        return dataclass(**{field.name: field.type(parameters[field.name]) for field in given})  # type: ignore[operator]

    return strategy_table.resolve(pick(Distribution)), pick(TrainingOptions), pick(InputOptions), pick(FaultTolerance)


def check_function(kind: str, exec_properties: Mapping[str, Any], base_model: bool) -> None:
    """Checks that the module's function hears of all that the Trainer is given.

    Args:
      kind: `build_model` or `run_fn`.
      exec_properties: The Trainer's properties; one that is missing has its default value.
      base_model: True if the Trainer has one.

    Raises:
      ConfigurationError: The function would ignore a setting, or it cannot train under the strategy.
    """
    distribution, schedule, reading, recovery = training_parameters(exec_properties)
    if kind == "run_fn":
        strategy_table.check_run_fn(distribution)
    arguments = [name for name in ("hparams", "custom_config") if json.loads(exec_properties.get(name) or "null")]
    if base_model:
        arguments.append("base_model")
    for name, reason in function_settings.ignored(kind, schedule, reading, recovery, arguments).items():
        raise ConfigurationError(f"{name}: {reason}")


def training_job(
    inputs: Artifacts,
    outputs: Artifacts,
    exec_properties: dict[str, Any],
    work_dir: str,
    addresses: Mapping[str, str] | None = None,
) -> TrainingJob:
    """Makes the job document.

    Args:
      inputs: Input artifacts of the execution.
      outputs: Its output artifacts.
      exec_properties: Its execution properties.
      work_dir: A folder that lives as long as the training, for the unpacked user module and the result.
      addresses: Where a copy of an artifact lies -> where the artifact does.

    Raises:
      ConfigurationError: What is asked for cannot be trained.
    """
    distribution, schedule, reading, recovery = training_parameters(exec_properties)
    train_args = _proto(exec_properties, standard_component_specs.TRAIN_ARGS_KEY, trainer_pb2.TrainArgs())
    eval_args = _proto(exec_properties, standard_component_specs.EVAL_ARGS_KEY, trainer_pb2.EvalArgs())
    schedule = replace(
        schedule,
        train_steps=schedule.train_steps or (0 if schedule.epochs else train_args.num_steps),
        eval_steps=schedule.eval_steps or eval_args.num_steps,
    )
    strategy_table.check(distribution, schedule, reading, recovery)
    if exec_properties.get("strategy") == strategy_info.AUTO:
        logging.info("strategy auto is %s: %s", *strategy_table.choose(distribution))
    module, kind = user_module(exec_properties, work_dir)
    check_function(kind, exec_properties, base_model=bool(inputs.get(standard_component_specs.BASE_MODEL_KEY)))
    hyperparameters = _hyperparameters(inputs)
    model_dir = artifact_utils.get_single_uri(outputs[standard_component_specs.MODEL_KEY])
    job = TrainingJob(
        module=module,
        data=None,
        distribution=distribution,
        schedule=schedule,
        outputs=Outputs(
            serving_model_dir=path_utils.serving_model_dir(model_dir),
            model_run_dir=artifact_utils.get_single_uri(outputs[standard_component_specs.MODEL_RUN_KEY]),
            result_file=os.path.join(work_dir, RESULT_FILE),
        ),
        reading=reading,
        recovery=recovery,
        hparams={**json.loads(exec_properties.get("hparams") or "{}"), **(hyperparameters or {}).get("values", {})},
    )
    if kind == "build_model":
        if not (schedule.train_steps or schedule.epochs):
            raise ConfigurationError("train_steps: how long to train is not said; write train_steps or epochs")
        splits = input_splits.Splits(inputs[standard_component_specs.EXAMPLES_KEY], reading, work_dir)
        data = _data(inputs, splits, exec_properties, train_args, eval_args)
        processes = strategy_table.reading_processes(distribution)
        logging.info("%d examples to train on: %s", data.train.num_examples, shard_plan.describe(data.train, processes))
        job = replace(job, data=data)
        root = exec_properties.get("checkpoint_dir") or os.path.join(
            os.path.dirname(os.path.dirname(model_dir)), CHECKPOINTS
        )
        shards_or_files = inputs[standard_component_specs.EXAMPLES_KEY]
        parts = run_identity.fingerprint_inputs(
            job, data, shards_or_files, exec_properties.get("module_fingerprint"), addresses
        )
        found = run_identity.checkpoint_dir(root, parts)
        return replace(job, outputs=replace(job.outputs, checkpoint_dir=found))
    train_args.num_steps = schedule.train_steps
    eval_args.num_steps = schedule.eval_steps
    return replace(
        job,
        run_fn=RunFn(
            inputs=artifact_utils.jsonify_artifact_dict(inputs),
            exec_properties={
                standard_component_specs.TRAIN_ARGS_KEY: proto_utils.proto_to_json(train_args),
                standard_component_specs.EVAL_ARGS_KEY: proto_utils.proto_to_json(eval_args),
                standard_component_specs.CUSTOM_CONFIG_KEY: exec_properties.get("custom_config") or "null",
            },
            hyperparameters=hyperparameters,
        ),
    )


def user_module(exec_properties: Mapping[str, Any], work_dir: str) -> tuple[UserModule, str]:
    """Where the user's function is and how to import it, and which of `build_model` and `run_fn` it is."""
    for kind in ("build_model", "run_fn"):
        if exec_properties.get(kind):
            return UserModule(function=exec_properties[kind]), kind
    packaged = exec_properties.get(standard_component_specs.MODULE_PATH_KEY)
    if packaged:  # `module@wheel`, as TFX packages a module_file
        name, wheels = udf_utils.decode_user_module_key(packaged)
        folder = os.path.join(work_dir, "module")
        for wheel in wheels:
            with zipfile.ZipFile(io_utils.ensure_local(wheel)) as archive:
                archive.extractall(folder)
        file = os.path.join(folder, f"{name}.py")
    else:
        file = io_utils.ensure_local(exec_properties[standard_component_specs.MODULE_FILE_KEY])
        folder, name = os.path.dirname(os.path.abspath(file)), os.path.splitext(os.path.basename(file))[0]
    kind = module_lib.training_function(module_lib.top_level_names(file), os.path.basename(file))
    return UserModule(function=f"{name}.{kind}", search_path=(folder,)), kind


def _data(
    inputs: Artifacts,
    splits: input_splits.Splits,
    exec_properties: Mapping[str, Any],
    train_args: trainer_pb2.TrainArgs,
    eval_args: trainer_pb2.EvalArgs,
) -> TrainingData:
    label = exec_properties.get("label")
    if not label:
        raise ConfigurationError("label: which feature build_model's model predicts is not said; write label")
    transform_graph = _uri(inputs, standard_component_specs.TRANSFORM_GRAPH_KEY)
    schema = _only_file(_uri(inputs, standard_component_specs.SCHEMA_KEY))
    splits.check_schema(transform_graph, schema)
    train = splits.read(list(train_args.splits) or ["train"], "train_args")
    if not train.num_examples:
        raise ConfigurationError("examples: the train split has no examples")
    # An eval split that nobody named may be missing: then nothing is evaluated while training.
    wanted = list(eval_args.splits) or ["eval"]
    has_eval = bool(eval_args.splits) or "eval" in splits.names
    if exec_properties.get("num_evaluators") and not has_eval:
        raise ConfigurationError(
            "num_evaluators: the examples have no split 'eval' to evaluate on; they have "
            f"{', '.join(sorted(splits.names))}; write num_evaluators=0, or name a split in eval_args"
        )
    evaluated = splits.read(wanted, "eval_args") if has_eval else None
    return TrainingData(
        train=train,
        eval=evaluated,
        label=label,
        example_weight=exec_properties.get("example_weight") or None,
        transform_graph=transform_graph,
        schema=schema,
        num_corrupt_records=splits.corrupt_records,
    )


def _hyperparameters(inputs: Artifacts) -> dict[str, Any] | None:
    """A Tuner's best hyperparameters, as keras_tuner writes them: `{"space": [...], "values": {...}}`."""
    file = _only_file(_uri(inputs, standard_component_specs.HYPERPARAMETERS_KEY))
    if file is None:
        return None
    with fileio.open(file, "r") as stream:
        return dict(json.load(stream))


def _uri(inputs: Artifacts, key: str) -> str | None:
    return artifact_utils.get_single_uri(inputs[key]) if inputs.get(key) else None


def _only_file(folder: str | None) -> str | None:
    return io_utils.get_only_uri_in_dir(folder) if folder else None


def _proto(exec_properties: Mapping[str, Any], key: str, message: Any) -> Any:
    return json_format.Parse(exec_properties.get(key) or "{}", message)

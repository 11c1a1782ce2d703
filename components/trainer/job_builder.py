"""Builds the `TrainingJob` from the arguments of the Trainer's executor.

Reads metadata and counts examples, but starts nothing.
"""

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from absl import logging
from google.protobuf import json_format
from tfx.components.util import udf_utils
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, path_utils, proto_utils

from tfx_distribute.components.trainer import input_splits, run_identity, staging
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import labels, strategy_info, strategy_table
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
from tfx_distribute.trainer_module.job.warm_start import WarmStart
from tfx_distribute.trainer_module.user_code import module_loader as module_lib

RESULT_FILE = "training_result.json"
CHECKPOINTS = ".checkpoints"  # folder next to those of the component's outputs


class TrainingParameters(NamedTuple):
    """The Trainer's parameters, in the groups of a `TrainingJob`, resolved."""

    distribution: Distribution
    training_options: TrainingOptions
    input_options: InputOptions
    fault_tolerance: FaultTolerance


def training_parameters(parameters: Mapping[str, Any]) -> TrainingParameters:
    """Groups the Trainer's parameters, with the numbers of steps in TFX's arguments.

    Those that are missing or None get their defaults; a strategy `auto` is resolved.
    """

    def select(dataclass: type) -> Any:
        set_fields = [field for field in fields(dataclass) if parameters.get(field.name) is not None]
        return dataclass(**{field.name: field.type(parameters[field.name]) for field in set_fields})  # type: ignore[operator]

    return TrainingParameters(
        strategy_table.resolve(select(Distribution)),
        _add_steps(select(TrainingOptions), *_read_args(parameters)),
        select(InputOptions),
        select(FaultTolerance),
    )


def check_function(
    kind: str, parameters: TrainingParameters, exec_properties: Mapping[str, Any], inputs: Mapping[str, Any]
) -> None:
    """Checks that a `build_model` or `run_fn` uses all settings of the Trainer."""
    if kind == "run_fn":
        strategy_table.check_run_fn(parameters.distribution)
    arguments = [name for name in ("hparams", "custom_config") if json.loads(exec_properties.get(name) or "null")]
    arguments += [name for name, given in inputs.items() if given]
    arguments += ["warm_start"] if exec_properties.get("warm_start") else []
    for name, reason in strategy_table.find_ignored(kind, *parameters[1:], arguments).items():
        raise ConfigurationError(f"{name}: {reason}")


def _add_steps(
    options: TrainingOptions, train_args: trainer_pb2.TrainArgs, eval_args: trainer_pb2.EvalArgs
) -> TrainingOptions:
    """Takes the numbers of steps from TFX's arguments where no parameter has them."""
    if train_args.num_steps and options.epochs:
        raise ConfigurationError(
            f"train_args: num_steps={train_args.num_steps} and epochs={options.epochs} both say how long to train; "
            "write one of them"
        )
    for argument, name, num_steps in (
        ("train_args", "train_steps", train_args.num_steps),
        ("eval_args", "eval_steps", eval_args.num_steps),
    ):
        value = getattr(options, name)
        if num_steps and value and num_steps != value:
            raise ConfigurationError(f"{argument}: num_steps={num_steps} contradicts {name}={value}; write one of them")
        options = replace(options, **{name: num_steps or value})
    return options


def build_job(
    staged: staging.Staged, exec_properties: dict[str, Any], parameters: TrainingParameters, work_dir: str
) -> TrainingJob:
    """Builds the job document of an execution of the Trainer.

    `work_dir` lives as long as the training, and gets the unpacked user module and the
    result.

    Raises:
      ConfigurationError: The job cannot be trained as configured.
      DataError: An input file is missing or damaged.
    """
    model_dir = artifact_utils.get_single_uri(staged.outputs[standard_component_specs.MODEL_KEY])
    outputs = Outputs(
        serving_model_dir=path_utils.serving_model_dir(model_dir),
        model_run_dir=artifact_utils.get_single_uri(staged.outputs[standard_component_specs.MODEL_RUN_KEY]),
        result_file=os.path.join(work_dir, RESULT_FILE),
    )
    job = describe_job(staged.inputs, outputs, exec_properties, parameters, work_dir)
    if job.data is None:  # a run_fn saves its state itself
        return job
    identity = run_identity.fingerprint_inputs(job, staged, exec_properties.get("module_fingerprint"))
    checkpoint_dir = run_identity.ensure_checkpoint_dir(checkpoint_root(exec_properties, model_dir), identity)
    return replace(job, outputs=replace(job.outputs, checkpoint_dir=checkpoint_dir))


def checkpoint_root(exec_properties: Mapping[str, Any], output_dir: str) -> str:
    """Returns the folder of the states of all runs of a component with this output."""
    default = os.path.join(os.path.dirname(os.path.dirname(output_dir)), CHECKPOINTS)
    return exec_properties.get("checkpoint_dir") or default


def describe_job(
    inputs: staging.Artifacts,
    outputs: Outputs,
    exec_properties: dict[str, Any],
    parameters: TrainingParameters,
    work_dir: str,
) -> TrainingJob:
    """Describes a training, but for the folder of its saved state; see `build_job`."""
    strategy_table.check(*parameters)
    if exec_properties.get("strategy") == strategy_info.AUTO:
        logging.info("strategy auto is %s: %s", *strategy_table.choose(parameters.distribution))
    if exec_properties.get("has_base_model") and not inputs.get(standard_component_specs.BASE_MODEL_KEY):
        logging.warning("base_model: there is none yet, so training starts from scratch, and no layer is frozen")
    module, kind = unpack_user_module(exec_properties, work_dir)
    check_function(kind, parameters, exec_properties, inputs)
    is_build_model = kind == "build_model"
    file = _file(inputs, standard_component_specs.HYPERPARAMETERS_KEY)  # of a Tuner, in KerasTuner's format
    hyperparameters = dict(json.loads(io_utils.read_string_file(file))) if file else None
    tuned = (hyperparameters or {}).get("values", {})
    examples = inputs.get(standard_component_specs.EXAMPLES_KEY, [])
    transform_graph = _uri(inputs, standard_component_specs.TRANSFORM_GRAPH_KEY)
    options = parameters.training_options
    return TrainingJob(
        module=module,
        data=_read_data(inputs, exec_properties, parameters) if is_build_model else None,
        run_fn=None if is_build_model else _describe_run_fn(inputs, exec_properties, options, hyperparameters),
        **parameters._asdict(),
        outputs=outputs,
        base_model=_uri(inputs, standard_component_specs.BASE_MODEL_KEY) or "",
        warm_start=WarmStart.from_json(exec_properties.get("warm_start") or ""),
        hparams={
            **json.loads(exec_properties.get("hparams") or "{}"),
            # KerasTuner's Hyperband has values of its own among them.
            **{name: value for name, value in tuned.items() if not name.startswith("tuner/")},
        },
        raw_examples=input_splits.find_raw_examples(examples, transform_graph),
    )


def _describe_run_fn(
    inputs: staging.Artifacts,
    exec_properties: Mapping[str, Any],
    options: TrainingOptions,
    hyperparameters: Mapping[str, Any] | None,
) -> RunFn:
    train_args, eval_args = _read_args(exec_properties)
    train_args.num_steps, eval_args.num_steps = options.train_steps, options.eval_steps
    properties = {
        standard_component_specs.TRAIN_ARGS_KEY: proto_utils.proto_to_json(train_args),
        standard_component_specs.EVAL_ARGS_KEY: proto_utils.proto_to_json(eval_args),
        standard_component_specs.CUSTOM_CONFIG_KEY: exec_properties.get("custom_config") or "null",
    }
    return RunFn(artifact_utils.jsonify_artifact_dict(inputs), properties, hyperparameters, _count_examples(inputs))


def unpack_user_module(exec_properties: Mapping[str, Any], work_dir: str) -> tuple[UserModule, str]:
    """Returns the user's function and its kind; unpacks a module that TFX packaged."""
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


def read_labels(exec_properties: Mapping[str, Any]) -> tuple[labels.FeatureNames | None, labels.FeatureNames | None]:
    """Reads and checks the names of labels and of examples' weights."""
    label, example_weight = (labels.from_text(exec_properties.get(name)) for name in ("label", "example_weight"))
    labels.check(label, example_weight, exec_properties.get("class_weight") or "")
    return label, example_weight


def _read_data(
    inputs: staging.Artifacts, exec_properties: Mapping[str, Any], parameters: TrainingParameters
) -> TrainingData:
    if not (parameters.training_options.train_steps or parameters.training_options.epochs):
        raise ConfigurationError("train_steps: neither train_steps nor epochs is set; write one of them")
    train_args, eval_args = _read_args(exec_properties)
    splits = input_splits.Splits(inputs[standard_component_specs.EXAMPLES_KEY])
    label, example_weight = read_labels(exec_properties)
    transform_graph = _uri(inputs, standard_component_specs.TRANSFORM_GRAPH_KEY)
    schema = _file(inputs, standard_component_specs.SCHEMA_KEY)
    splits.check_schema(transform_graph, schema)
    train_splits = list(train_args.splits) or ["train"]
    train = splits.read(train_splits, "train_args")
    if not train.num_examples:
        raise ConfigurationError("examples: the train split has no examples")
    logging.info("%d examples to train on, in %d files", train.num_examples, len(train.files))
    # Splits named in eval_args must exist. If none is named, and there is no split
    # `eval`, nothing is evaluated while training.
    eval_splits = list(eval_args.splits) or ["eval"]
    has_eval = bool(eval_args.splits) or "eval" in splits.names
    held_out = splits.read(eval_splits, "eval_args") if has_eval else None
    names = train_splits + eval_splits * has_eval
    ranges = {feature: splits.read_ranges(names, "label", feature) for feature in labels.names_in(label)}
    for feature in labels.names_in(example_weight):
        splits.read_ranges(names, "example_weight", feature)
    return TrainingData(
        train=train,
        eval=held_out,
        label=label,
        example_weight=example_weight,
        transform_graph=transform_graph,
        schema=schema,
        label_ranges={feature: by_split for feature, by_split in ranges.items() if by_split},
    )


def _count_examples(inputs: staging.Artifacts) -> dict[str, int] | None:
    """Returns the number of examples of each split; None if there are no statistics."""
    if not inputs.get(standard_component_specs.STATISTICS_KEY):
        return None
    from tfx.components.statistics_gen import stats_artifact_utils  # takes a second to import

    statistics = artifact_utils.get_single_instance(inputs[standard_component_specs.STATISTICS_KEY])
    return {
        split: stats_artifact_utils.load_statistics(statistics, split).proto().datasets[0].num_examples
        for split in artifact_utils.decode_split_names(statistics.split_names)
    }


def _uri(inputs: staging.Artifacts, key: str) -> str | None:
    return artifact_utils.get_single_uri(inputs[key]) if inputs.get(key) else None


def _file(inputs: staging.Artifacts, key: str) -> str | None:
    folder = _uri(inputs, key)
    return io_utils.get_only_uri_in_dir(folder) if folder else None


def _read_args(exec_properties: Mapping[str, Any]) -> tuple[trainer_pb2.TrainArgs, trainer_pb2.EvalArgs]:
    """Reads TFX's `train_args` and `eval_args` from JSON; None is an empty one."""
    return (
        json_format.Parse(exec_properties.get(standard_component_specs.TRAIN_ARGS_KEY) or "{}", trainer_pb2.TrainArgs()),
        json_format.Parse(exec_properties.get(standard_component_specs.EVAL_ARGS_KEY) or "{}", trainer_pb2.EvalArgs()),
    )

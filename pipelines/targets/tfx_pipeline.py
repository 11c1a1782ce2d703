"""Builds a TFX pipeline from a `PipelineSpec`; runs nothing."""

import difflib
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.proto import config_pb2
from tfx import types
from tfx.components.example_gen.custom_executors import avro_executor, parquet_executor
from tfx.components.schema_gen.component import SchemaGen
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.components.transform.component import Transform
from tfx.dsl.components.base import base_component, base_node
from tfx.dsl.components.common import importer, resolver
from tfx.dsl.input_resolution.strategies import latest_artifact_strategy, latest_blessed_model_strategy
from tfx.orchestration import data_types, pipeline
from tfx.proto import example_gen_pb2, pusher_pb2
from tfx.types import standard_artifacts

from tfx_distribute.components import Evaluator, ExampleValidator, Pusher, Sharder, Trainer, Tuner, checked_transform
from tfx_distribute.components.example_gen import component as example_gens
from tfx_distribute.components.example_validator.rules import ValidationRules
from tfx_distribute.components.pusher.executor import KEEP
from tfx_distribute.pipelines.spec import beam
from tfx_distribute.pipelines.spec.data_checks import get_input_base_and_pattern
from tfx_distribute.pipelines.spec.metric_config import ONE_CLASS_OR_TOP_K
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, Data, Evaluate, Metric, PipelineSpec, Train
from tfx_distribute.pipelines.spec.user_module import Module
from tfx_distribute.pipelines.targets import resolvers
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.state.base_model import location
from tfx_distribute.trainer_module.user_code import fingerprint, user_exit

FINGERPRINT = "fingerprint"  # execution property of all components
# These treat every value that is false in Python as missing.
_LOSSY_TRANSFORMS = (
    avro_executor.Executor.GetInputSourceToExamplePTransform,
    parquet_executor.Executor.GetInputSourceToExamplePTransform,
)


@dataclass(frozen=True)
class PipelinePaths:
    """Folders, addresses and the container image of a pipeline.

    `metadata` is the connection configuration of ML Metadata; None if the platform has
    its own. `image` is that of all steps and of Dataflow's machines; None on this
    machine. `checkpoints` has the training states; None for the Trainer's own folder.
    """

    pipeline_root: str
    metadata: Any
    push_directory: str
    image: str | None = None
    checkpoints: str | None = None


def build(spec: PipelineSpec, module: Module, paths: PipelinePaths, enable_cache: bool = True) -> pipeline.Pipeline:
    """Builds the TFX pipeline.

    The Trainer's parameters become pipeline parameters (`RuntimeParameter`). TFX loses
    defaults that are 0 or empty, so a runner must pass all of `get_parameter_values`.
    The module has to be importable where the components run.
    """
    module_fingerprint = module.fingerprint()
    parameters = {
        name: data_types.RuntimeParameter(name, type(value), default=value)
        for name, value in get_parameter_values(spec).items()
    }
    parameters.pop("span", None)  # it is the ExampleGen's
    example_gen = make_example_gen(spec.data)
    # By component, of the files that it reads besides its inputs.
    file_fingerprints = {example_gen.id: _fingerprint_data(spec.data, example_gen)}
    examples = example_gen.outputs["examples"]
    statistics = StatisticsGen(examples=examples)
    schema_gen: base_node.BaseNode
    if spec.data.schema_file:
        schema_gen = ImportSchemaGen(schema_file=spec.data.schema_file)
        file_fingerprints[schema_gen.id] = _fingerprint_file(spec.data.schema_file)
    else:
        schema_gen = SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
    schema = schema_gen.outputs["schema"]
    rules = ValidationRules(spec.validation.anomalies, spec.validation.drift, spec.validation.skew)
    last_anomalies = None
    if rules.drift:
        last_anomalies = resolver.Resolver(
            # Elsewhere the platform resolves it: its compiler knows TFX's own strategy.
            strategy_class=latest_artifact_strategy.LatestArtifactStrategy if paths.image else resolvers.LastData,
            anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
        ).with_id("last-data")
    validator = ExampleValidator(
        statistics=statistics.outputs["statistics"],
        schema=schema,
        rules=rules,
        baseline=last_anomalies.outputs["anomalies"] if last_anomalies else None,
        stop_on_anomalies=parameters.pop("stop_on_anomalies"),
    )
    nodes: list[base_node.BaseNode] = [example_gen, statistics, schema_gen, *filter(None, [last_anomalies]), validator]
    transform_graph = None
    if spec.transform:
        transform = Transform(
            examples=examples,
            schema=schema,
            **_preprocessing(spec.transform.preprocessing_fn, spec.trainer, module),
            materialize=False,  # the Sharder transforms the examples that it reads
            disable_statistics=True,
            disable_analyzer_cache=True,  # TFX reads only a cache that a resolver finds
        )
        transform.add_upstream_node(validator)  # which may stop the run
        file_fingerprints[transform.id] = module_fingerprint
        transform_graph = transform.outputs["transform_graph"]
        nodes.append(transform)
    num_shards = parameters.pop("num_shards")
    sharder = Sharder(
        examples=examples,
        transform_graph=transform_graph,
        schema=None if transform_graph else schema,
        num_shards=num_shards,
        # Passed only if it determines the number of shards: otherwise a different
        # number of workers would needlessly write new shards.
        num_workers=None if spec.shards.num_shards else parameters["num_workers"],
        compression=spec.shards.compression or ("gzip" if module.train == "run_fn" else "none"),
        seed=spec.shards.seed,
    )
    sharder.add_upstream_node(validator)
    nodes.append(sharder)
    blessed_model = None  # resolves the latest one, for whoever needs it
    start = spec.trainer.base_model
    has_baseline = spec.evaluate and any(metric.change for metric in spec.evaluate.metrics.values())
    if start.path == LATEST_BLESSED or has_baseline:
        tfx_strategy = latest_blessed_model_strategy.LatestBlessedModelStrategy
        blessed_model = resolver.Resolver(
            strategy_class=tfx_strategy if paths.image else resolvers.LatestBlessing,
            model=types.Channel(type=standard_artifacts.Model),
            model_blessing=types.Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("latest-blessed-model")
        nodes.append(blessed_model)
    base_model = None
    if start.path == LATEST_BLESSED and blessed_model:
        base_model = blessed_model.outputs["model"]
    elif start.path:
        # With a fingerprint of its weights, the Trainer runs again if they change in
        # the same place. That of a model at an address is not known here.
        weights = {} if "://" in start.path else {FINGERPRINT: location.fingerprint(start.path)}
        model_type = standard_artifacts.Model
        imported = importer.Importer(source_uri=start.path, artifact_type=model_type, custom_properties=weights)
        nodes.append(imported.with_id("base-model"))
        base_model = imported.outputs["result"]
    training = {
        module.train: f"{module.name}.{module.train}",
        "module_fingerprint": module_fingerprint,
        "examples": sharder.outputs["sharded_examples"],
        "transform_graph": transform_graph,
        "schema": schema,
        "base_model": base_model,
        "warm_start": start.warm_start,
        "label": spec.trainer.label,
        "example_weight": spec.trainer.example_weight,
        "checkpoint_dir": paths.checkpoints,
        **parameters,
    }
    hyperparameters = tuner_results = None
    if spec.tune:
        tuner = Tuner(spec.tune, **training)
        hyperparameters = tuner.outputs["best_hyperparameters"]
        tuner_results = tuner.outputs["tuner_results"]
        nodes.append(tuner)
    trainer = Trainer(**training, hyperparameters=hyperparameters, custom_config=spec.trainer.custom_config)
    nodes.append(trainer)
    blessing = None
    if spec.evaluate:
        evaluator = Evaluator(
            examples=examples,
            model=trainer.outputs["model"],
            baseline_model=blessed_model.outputs["model"] if blessed_model and has_baseline else None,
            eval_config=make_eval_config(spec, spec.evaluate, module),
            example_splits=spec.evaluate.splits,
            # For the page of the platform; `tfx-distribute report` makes one here.
            report=spec.name if paths.image else None,
            statistics=statistics.outputs["statistics"],
            anomalies=validator.outputs["anomalies"],
            model_run=trainer.outputs["model_run"],
            tuner_results=tuner_results,
        )
        nodes.append(evaluator)
        if spec.evaluate.has_thresholds:
            blessing = evaluator.outputs["blessing"]
    if spec.push:
        destination = pusher_pb2.PushDestination(filesystem={"base_directory": paths.push_directory})
        keep = {KEEP: spec.push.keep} if spec.push.keep else None
        model = trainer.outputs["model"]
        nodes.append(Pusher(model=model, model_blessing=blessing, push_destination=destination, custom_config=keep))
    for node in nodes:
        if isinstance(node, base_component.BaseComponent):
            add_to_cache_key(node, file_fingerprints.get(node.id, ""))
    return pipeline.Pipeline(
        pipeline_name=spec.name,
        pipeline_root=paths.pipeline_root,
        components=nodes,
        enable_cache=enable_cache,
        metadata_connection_config=paths.metadata,
        beam_pipeline_args=beam.make_pipeline_args(spec.beam, paths.image, None if paths.image else module.folder),
    )


def get_parameter_values(spec: PipelineSpec) -> dict[str, int | float | str]:
    """Returns the values of all pipeline parameters by name.

    The hyperparameters of the user's module are one parameter, a JSON object.
    """
    values = spec.trainer.parameters.model_dump()
    # A TFX RuntimeParameter cannot be a bool.
    values = {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
    values = {
        **values,
        "hparams": json.dumps(spec.trainer.hparams),
        "num_shards": spec.shards.num_shards,
        "stop_on_anomalies": int(spec.validation.stop_on_anomalies),
    }
    return {**values, "span": spec.data.span} if spec.data.has_spans else values


def add_to_cache_key(component: base_component.BaseComponent, content: str) -> None:
    """Makes a component run again after its files or installed packages have changed.

    Sets an execution property, which executors ignore, to `content`: text that changes
    with the files that the component reads besides its inputs.
    """
    properties = {"environment": fingerprint.environment(), "content": content}
    component.spec.exec_properties[FINGERPRINT] = json.dumps(properties, sort_keys=True)


def fingerprint_example_gen(component: base_node.BaseNode, module: str | None = None) -> str:
    """Fingerprints the code of an ExampleGen, and the version that it declares.

    `module` is the name of the module that makes it; None for that of its class.
    """
    name = module or type(component).__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    code = fingerprint.of_imports(name, Path(file)) if file else ""
    return f"{code} {getattr(component, 'data_version', '')}".strip()


def _preprocessing(name: str, trainer: Train, module: Module) -> dict[str, Any]:
    """Returns the arguments of Transform that say what it applies."""
    function = f"{module.name}.{name}"
    if module.makes_labels():
        return {"preprocessing_fn": function}
    checked = f"{checked_transform.__name__}.{checked_transform.preprocessing_fn.__name__}"
    return {"preprocessing_fn": checked, "custom_config": {"preprocessing_fn": function, "names": trainer.target_features()}}


def _fingerprint_data(data: Data, example_gen: base_node.BaseNode) -> str:
    """Fingerprints the user's ExampleGen and the files in its arguments."""
    if data.example_gen is None:
        return ""
    arguments = [_fingerprint_file(value) for value in data.example_gen_args.values() if isinstance(value, str)]
    return " ".join([fingerprint_example_gen(example_gen, data.example_gen.rpartition(".")[0]), *arguments]).strip()


def _fingerprint_file(path: str) -> str:
    """Fingerprints a local file; empty for an address, or a file only in the image."""
    return fingerprint.of_file(path) if Path(path).is_file() else ""


def make_example_gen(data: Data) -> base_node.BaseNode:
    """Makes the component that reads a pipeline's data.

    Raises:
      ConfigurationError: The user's ExampleGen cannot be made, or changes values.
    """
    name, source = data.source
    splits = [{"name": split, "hash_buckets": buckets} for split, buckets in data.splits.items()]
    output = example_gen_pb2.Output(split_config={"splits": splits})
    if name == "example_gen":
        return _make_user_example_gen(source, {"output_config": output, **data.example_gen_args})
    base, pattern = get_input_base_and_pattern(data)
    arguments = {
        "input_base": base,
        "input_config": example_gen_pb2.Input(splits=[{"name": "all", "pattern": pattern}]),
        "output_config": output,
        "require": data.require,
    }
    if name == "csv":
        arguments["schema_file"] = data.schema_file
    if data.has_spans:
        arguments |= {"window": data.window, "skip_missing": data.missing == "skip", "time_zone": data.time_zone}
        arguments["span"] = data_types.RuntimeParameter("span", str, default=data.span)
    return example_gens.BY_FORMAT[name](**arguments)


def _make_user_example_gen(path: str, arguments: dict[str, Any]) -> base_node.BaseNode:
    module, _, name = path.rpartition(".")
    try:
        component = getattr(importlib.import_module(module), name)(**arguments)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"data.example_gen: cannot make {path!r}: {user_exit.describe(error)}") from error
    if not isinstance(component, base_node.BaseNode) or "examples" not in component.outputs:
        raise ConfigurationError(f"data.example_gen: {path!r} is not a TFX component with an output 'examples'")
    executor = getattr(component.executor_spec, "executor_class", None)
    if getattr(executor, "GetInputSourceToExamplePTransform", None) in _LOSSY_TRANSFORMS:
        raise ConfigurationError(
            f"data.example_gen: TFX's executor of {path!r} turns each 0, 0.0, False and empty string "
            "into a missing value; convert the files to Parquet and write data.parquet, or use an executor of your own"
        )
    return component


def make_eval_config(spec: PipelineSpec, evaluate: Evaluate, module: Module) -> tfma.EvalConfig:
    """Returns TFMA's configuration for the Evaluator.

    Raises:
      ConfigurationError: Neither Keras nor TFMA has a metric of a given name.
    """
    known = {*dir(tf.keras.metrics), *dir(tf.keras.losses), *tfma.metrics.metric_types.registered_metrics()}
    for key, metric in evaluate.metrics.items():
        name = metric.class_name or key
        if name not in known and metric.module is None:
            close = difflib.get_close_matches(name, known, n=1)
            raise ConfigurationError(
                f"evaluate.metrics: there is no metric {name!r} in Keras or TFMA"
                + (f"; did you mean {close[0]!r}?" if close else "")
            )
    preprocessing = evaluate.preprocessing_functions
    if preprocessing is None:
        # Our export writes this signature, because the transform may make the label.
        preprocessing = ["transform_features"] if spec.transform and module.train == "build_model" else []
    label, weight = evaluate.label or spec.trainer.label, spec.trainer.example_weight
    if isinstance(label, dict) and isinstance(weight, str):
        weight = dict.fromkeys(label, weight)
    options, model_type = None, ""
    if module.train == "build_model":
        # Our export has all signatures. TFMA would load it to see whether Keras can,
        # which depends on the version of `tf.keras`, and would then also compute the
        # metrics that the model was compiled with.
        model_type = tfma.constants.TF_GENERIC
    elif isinstance(label, dict):  # TFMA would give the losses of the compiled model another output's labels
        options = {"include_default_metrics": {"value": False}}  # TFMA 0.52 exports no class for it
    return tfma.EvalConfig(
        options=options,
        model_specs=[
            tfma.ModelSpec(
                model_type=model_type,
                signature_name="serving_default",
                **_keys("label", label),
                **_keys("example_weight", weight),
                preprocessing_function_names=preprocessing,
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), *(tfma.SlicingSpec(feature_keys=keys) for keys in evaluate.slices)],
        metrics_specs=make_metrics_specs(evaluate.metrics, list(label) if isinstance(label, dict) else []),
    )


def _keys(kind: str, features: str | dict[str, str] | None) -> dict[str, Any]:
    """Returns TFMA's setting for one feature, or for one of each output."""
    return {f"{kind}_keys": features} if isinstance(features, dict) else {f"{kind}_key": features or ""}


def make_metrics_specs(metrics: Mapping[str, Metric], outputs: Sequence[str] = ()) -> list[tfma.MetricsSpec]:
    """Returns TFMA's configuration of metrics and their thresholds.

    `outputs` are those of the model that have labels of their own. With several, each
    metric names its own.
    """
    specs: dict[tuple[str, str], tfma.MetricsSpec] = {}
    for name, metric in metrics.items():
        output = metric.output_name or (outputs[0] if outputs else "")
        options = _make_binarization(name, metric)
        new = tfma.MetricsSpec(output_names=[output] if output else [], binarize=options)
        spec = specs.setdefault((name if options else "", output), new)
        spec.metrics.append(_make_metric_config(name, metric, ONE_CLASS_OR_TOP_K if options else ()))
    return [specs[key] for key in sorted(specs, key=lambda key: bool(key[0]))]


def _make_binarization(name: str, metric: Metric) -> config_pb2.BinarizationOptions | None:
    """Returns the class or top k of a plot or a metric with a threshold; else None.

    As arguments of the metric, TFMA would report it under its class or top k, and look
    for its threshold elsewhere. A plot does not take them.
    """
    class_name = metric.class_name or name
    is_plain = class_name.startswith(("SetMatch", "COCO"))  # reported like metrics without class or top k
    class_id, top_k = metric.config.get("class_id"), metric.config.get("top_k")
    if not (metric.has_threshold or class_name.endswith("Plot")) or is_plain or class_id is top_k is None:
        return None
    if class_id is not None:
        return config_pb2.BinarizationOptions(class_ids={"values": [class_id]})
    return config_pb2.BinarizationOptions(top_k_list={"values": [top_k]})


def _make_metric_config(name: str, metric: Metric, without: Sequence[str]) -> tfma.MetricConfig:
    # Named as in the pipeline file, so that results can be found by that name.
    arguments = {"name": name, **{key: value for key, value in metric.config.items() if key not in without}}
    class_name = metric.class_name or name
    config = tfma.MetricConfig(class_name=class_name, module=metric.module, config=json.dumps(arguments))
    if not metric.module:  # else it may be in the image only
        _check_metric_arguments(name, config)
    if metric.lower_bound is not None:
        config.threshold.value_threshold.lower_bound.value = metric.lower_bound
    if metric.upper_bound is not None:
        config.threshold.value_threshold.upper_bound.value = metric.upper_bound
    if metric.change is not None:
        change = config.threshold.change_threshold
        change.direction = (
            tfma.MetricDirection.HIGHER_IS_BETTER if metric.change.higher_is_better else tfma.MetricDirection.LOWER_IS_BETTER
        )
        if metric.change.absolute is not None:
            change.absolute.value = metric.change.absolute
        if metric.change.relative is not None:
            change.relative.value = metric.change.relative
    return config


def _check_metric_arguments(name: str, config: tfma.MetricConfig) -> None:
    """Checks that a metric can be made, which TFMA does only after the training."""
    try:
        metric_specs.metric_instance(config)
    except Exception as error:
        is_keras = config.class_name not in metric_types.registered_metrics()
        advice = (
            "" if is_keras else "; TFMA takes its own metric of this name: for Keras's, write module: and a subclass in it"
        )
        reason = [type(error).__name__, *str(error).strip().splitlines()][-1].removeprefix("Exception encountered: ")
        raise ConfigurationError(f"evaluate.metrics.{name}: cannot be made: {reason}{advice}") from error

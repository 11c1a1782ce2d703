"""A `PipelineSpec` -> a TFX pipeline of TFX's own components and our Trainer. Builds, runs nothing."""

import difflib
import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_model_analysis as tfma
from tfx import types
from tfx.components.example_gen import driver
from tfx.components.example_gen.custom_executors import avro_executor, parquet_executor
from tfx.components.example_validator.component import ExampleValidator
from tfx.components.schema_gen.component import SchemaGen
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.components.transform.component import Transform
from tfx.dsl.components.base import base_component, base_node
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
from tfx.orchestration import data_types, metadata, pipeline
from tfx.proto import example_gen_pb2, pusher_pb2
from tfx.types import standard_artifacts

from tfx_distribute.components import Evaluator, Pusher, Sharder, Trainer
from tfx_distribute.components.example_gen import component as example_gens
from tfx_distribute.components.example_gen import driver as example_gen_driver
from tfx_distribute.pipelines.spec import beam
from tfx_distribute.pipelines.spec.data_checks import get_input_base_and_pattern
from tfx_distribute.pipelines.spec.metric_config import ONE_CLASS_OR_TOP_K
from tfx_distribute.pipelines.spec.pipeline import Data, Evaluate, Metric, PipelineSpec
from tfx_distribute.pipelines.spec.user_module import Module
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.user_code import fingerprint, user_exit

FINGERPRINT = "fingerprint"  # execution property of all components
# These take each value that Python counts as false for a missing one.
_LOSSY = (
    avro_executor.Executor.GetInputSourceToExamplePTransform,
    parquet_executor.Executor.GetInputSourceToExamplePTransform,
)


@dataclass(frozen=True)
class PipelinePaths:
    """Where a pipeline keeps its things.

    Attributes:
      pipeline_root: Folder or address that artifacts are written under.
      metadata: Connection of ML Metadata; None where the platform has its own.
      push_directory: Folder or address that models are pushed to.
      checkpoint_dir: Folder of training states; None for one beside the Trainer's outputs.
      image: Container image of all steps, which machines of Dataflow have too; None where there is none.
    """

    pipeline_root: str
    metadata: Any
    push_directory: str
    checkpoint_dir: str | None = None
    image: str | None = None


def sqlite(path: str) -> Any:
    """The connection of an ML Metadata store in a SQLite file."""
    return metadata.sqlite_metadata_connection_config(path)


def build(spec: PipelineSpec, module: Module, places: PipelinePaths, enable_cache: bool = True) -> pipeline.Pipeline:
    """Makes the TFX pipeline.

    The parameters become pipeline parameters (`RuntimeParameter`); `parameter_values` has their values. TFX
    loses a default that is 0 or empty, so a runner has to be given all of them.

    Args:
      spec: What the pipeline is.
      module: The user's module; importable where the components run.
      places: Where the pipeline keeps its things.
      enable_cache: Whether nodes whose inputs have not changed take their outputs from an earlier run.

    Raises:
      ConfigurationError: An ExampleGen of the user's is not one.
    """
    code = module.fingerprint()
    content: dict[str, str] = {}  # component -> fingerprint of the files that it reads besides its inputs
    example_gen = example_gen_of(spec.data)
    content[example_gen.id] = _example_gen_content(spec.data)
    examples = example_gen.outputs["examples"]
    statistics = StatisticsGen(examples=examples)
    schema_gen: base_node.BaseNode = (
        ImportSchemaGen(schema_file=spec.data.schema_file)
        if spec.data.schema_file
        else SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
    )
    if spec.data.schema_file:
        content[schema_gen.id] = _file_content(spec.data.schema_file)
    schema = schema_gen.outputs["schema"]
    validator = ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema)
    nodes: list[base_node.BaseNode] = [example_gen, statistics, schema_gen, validator]
    transform_graph = None
    if spec.transform:
        transform = Transform(
            examples=examples,
            schema=schema,
            preprocessing_fn=module.function_path(spec.transform.preprocessing_fn),
            # The Sharder writes what the transform makes, with its statistics, in the one pass that this would be.
            materialize=False,
            disable_statistics=True,
        )
        content[transform.id] = code
        transform_graph = transform.outputs["transform_graph"]
        nodes.append(transform)
    parameters = {
        name: data_types.RuntimeParameter(name, type(value), default=value) for name, value in parameter_values(spec).items()
    }
    num_shards = parameters.pop("num_shards")
    sharder = Sharder(
        examples=examples,
        transform_graph=transform_graph,
        schema=None if transform_graph else schema,
        num_shards=num_shards,
        # It decides on the shards only where nobody else does; else another number of workers would need no new ones.
        num_workers=None if spec.shards.num_shards else parameters["num_workers"],
        compression=spec.shards.compression or ("gzip" if module.train == "run_fn" else "none"),
        seed=spec.shards.seed,
        disable_statistics=spec.transform is None or spec.transform.disable_statistics,
    )
    nodes.append(sharder)
    trainer = Trainer(
        **{module.train: module.function_path(module.train)},
        module_fingerprint=code,
        examples=sharder.outputs["sharded_examples"],
        transform_graph=transform_graph,
        schema=schema,
        label=spec.trainer.label,
        example_weight=spec.trainer.example_weight,
        custom_config=spec.trainer.custom_config,
        checkpoint_dir=places.checkpoint_dir,
        **parameters,
    )
    nodes.append(trainer)
    blessing = None
    if spec.evaluate:
        evaluation = _evaluation(spec, spec.evaluate, module, examples, trainer.outputs["model"])
        nodes += evaluation
        if spec.evaluate.has_thresholds:
            blessing = evaluation[-1].outputs["blessing"]
    if spec.push:
        destination = pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=places.push_directory)
        )
        nodes.append(Pusher(model=trainer.outputs["model"], model_blessing=blessing, push_destination=destination))
    for node in nodes:
        if isinstance(node, base_component.BaseComponent):
            _add_to_cache_key(node, content.get(node.id, ""))
    return pipeline.Pipeline(
        pipeline_name=spec.name,
        pipeline_root=places.pipeline_root,
        components=nodes,
        enable_cache=enable_cache,
        metadata_connection_config=places.metadata,
        beam_pipeline_args=beam.make_pipeline_args(spec.beam, places.image),
    )


def parameter_values(spec: PipelineSpec) -> dict[str, int | float | str]:
    """Name and value of each pipeline parameter; the module's hyperparameters are one, a JSON object."""
    values = spec.trainer.parameters.model_dump()
    # A RuntimeParameter of TFX is no bool.
    values = {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
    return {**values, "hparams": json.dumps(spec.trainer.hparams), "num_shards": spec.shards.num_shards}


def _add_to_cache_key(component: base_component.BaseComponent, content: str) -> None:
    """Makes a component run again when its files or installed packages have changed. Executors ignore the property."""
    properties = {"environment": fingerprint.environment(), "content": content}
    component.spec.exec_properties[FINGERPRINT] = json.dumps(properties, sort_keys=True)


def _example_gen_content(data: Data) -> str:
    """Fingerprints the user's ExampleGen: its code, and files that its arguments name."""
    if data.example_gen is None:
        return ""
    name = data.example_gen.rpartition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    arguments = [_file_content(value) for value in data.example_gen_args.values() if isinstance(value, str)]
    return " ".join([fingerprint.of_imports(name, Path(file)) if file else "", *arguments]).strip()


def _file_content(path: str) -> str:
    """Fingerprints a local file; empty for an address, and for what only a container image has."""
    return fingerprint.of_file(path) if Path(path).is_file() else ""


def example_gen_of(data: Data) -> base_node.BaseNode:
    """Makes the component that reads a pipeline's data.

    Raises:
      ConfigurationError: An ExampleGen of the user's cannot be made, or changes values.
    """
    name, source = data.source
    output = example_gen_pb2.Output(
        split_config=example_gen_pb2.SplitConfig(
            splits=[
                example_gen_pb2.SplitConfig.Split(name=split, hash_buckets=buckets) for split, buckets in data.splits.items()
            ]
        )
    )
    if name == "example_gen":
        return _own_example_gen(source, {"output_config": output, **data.example_gen_args})
    base, pattern = get_input_base_and_pattern(data)
    arguments = {
        "input_base": base,
        "input_config": example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="all", pattern=pattern)]),
        "output_config": output,
    }
    if name == "csv":
        return example_gens.CsvExampleGen(**arguments)
    if name == "tfrecord":
        return example_gens.ImportExampleGen(**arguments)
    return example_gens.ParquetExampleGen(**arguments)


def _own_example_gen(path: str, arguments: dict[str, Any]) -> base_node.BaseNode:
    module, _, name = path.rpartition(".")
    try:
        component = getattr(importlib.import_module(module), name)
        made = component(**arguments)
    except SystemExit as error:
        raise ConfigurationError(f"data.example_gen: cannot make {path!r}: {user_exit.describe(error)}") from error
    except Exception as error:
        raise ConfigurationError(f"data.example_gen: cannot make {path!r}: {type(error).__name__}: {error}") from error
    if not isinstance(made, base_node.BaseNode) or "examples" not in made.outputs:
        raise ConfigurationError(f"data.example_gen: {path!r} is not a TFX component with an output 'examples'")
    executor = getattr(made.executor_spec, "executor_class", None)
    if getattr(executor, "GetInputSourceToExamplePTransform", None) in _LOSSY:
        raise ConfigurationError(
            f"data.example_gen: TFX's executor of {path!r} turns each 0, 0.0, False and empty string "
            "into a missing value; convert the files to Parquet and write data.parquet, or use an executor of your own"
        )
    if made.driver_class is driver.FileBasedDriver:  # whose cache key is the size of files and the second of their change
        made.driver_class = example_gen_driver.PatternDriver
    return made


def _evaluation(
    spec: PipelineSpec, evaluate: Evaluate, module: Module, examples: types.BaseChannel, model: types.BaseChannel
) -> list[base_node.BaseNode]:
    """Evaluator, after the resolver of the latest blessed model where a threshold compares with it."""
    nodes: list[base_node.BaseNode] = []
    baseline = None
    if any(metric.change for metric in evaluate.metrics.values()):
        baseline_resolver = resolver.Resolver(
            strategy_class=latest_blessed_model_strategy.LatestBlessedModelStrategy,
            model=types.Channel(type=standard_artifacts.Model),
            model_blessing=types.Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("latest-blessed-model")
        baseline = baseline_resolver.outputs["model"]
        nodes.append(baseline_resolver)
    evaluator = Evaluator(
        examples=examples,
        model=model,
        baseline_model=baseline,
        eval_config=eval_config(spec, evaluate, module),
        example_splits=evaluate.splits,
    )
    return [*nodes, evaluator]


def eval_config(spec: PipelineSpec, evaluate: Evaluate, module: Module) -> tfma.EvalConfig:
    """What Evaluator is told."""
    known = {*dir(tf.keras.metrics), *dir(tf.keras.losses), *tfma.metrics.metric_types.registered_metrics()}
    for name in evaluate.metrics:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise ConfigurationError(
                f"evaluate.metrics: there is no metric {name!r} in Keras or TFMA"
                + (f"; did you mean {close[0]!r}?" if close else "")
            )
    preprocessing = evaluate.preprocessing_functions
    if preprocessing is None:
        # The signature that our export writes: the label may be made by the transform.
        preprocessing = ["transform_features"] if spec.transform and module.train == "build_model" else []
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key=evaluate.label or spec.trainer.label,
                example_weight_key=spec.trainer.example_weight or "",
                preprocessing_function_names=preprocessing,
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), *(tfma.SlicingSpec(feature_keys=keys) for keys in evaluate.slices)],
        metrics_specs=metrics_specs(evaluate.metrics),
    )


def metrics_specs(metrics: Mapping[str, Metric]) -> list[tfma.MetricsSpec]:
    """Returns TFMA's configuration of metrics and their thresholds.

    Args:
      metrics: Name of a metric's class -> its thresholds.
    """
    specs = [_binarized(name, metric) for name, metric in metrics.items() if _is_binarized(name, metric)]
    configs = [_metric_config(name, metric) for name, metric in metrics.items() if not _is_binarized(name, metric)]
    bounded = any(metric.lower_bound is not None or metric.upper_bound is not None for metric in metrics.values())
    if not bounded and any(metric.has_threshold for metric in metrics.values()):
        # The first model has no baseline: TFX then drops thresholds on change, and blesses nothing without any other.
        configs.append(_metric_config("ExampleCount", Metric(lower_bound=0.0, config={"name": "baseline_or_any"})))
    return [*([tfma.MetricsSpec(metrics=configs)] if configs else []), *specs]


def _is_binarized(name: str, metric: Metric) -> bool:
    """Returns true if TFMA reports the metric under its class or top k, and would look for its threshold elsewhere."""
    by_itself = name.startswith(("SetMatch", "COCO"))  # reported as any other metric
    return metric.has_threshold and not by_itself and any(metric.config.get(key) is not None for key in ONE_CLASS_OR_TOP_K)


def _binarized(name: str, metric: Metric) -> tfma.MetricsSpec:
    """Returns a specification that says for all its metrics which class or top k they are of."""
    rest = {key: value for key, value in metric.config.items() if key not in ONE_CLASS_OR_TOP_K}
    spec = tfma.MetricsSpec(metrics=[_metric_config(name, metric.model_copy(update={"config": rest}))])
    if metric.config.get("class_id") is not None:
        spec.binarize.class_ids.values.append(metric.config["class_id"])
    else:
        spec.binarize.top_k_list.values.append(metric.config["top_k"])
    return spec


def _metric_config(name: str, metric: Metric) -> tfma.MetricConfig:
    # Called as in the pipeline file, so that results can be found again whatever TFMA would call them.
    config = tfma.MetricConfig(class_name=name, config=json.dumps({"name": name, **metric.config}))
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

"""Runs an example's pipeline with stock TFX components, written like TFX's examples.

python benchmarks/stock/stock_pipeline.py digits|taxi ROOT [CSV_FOLDER EXAMPLES]

The taxi pipeline reads trips from a folder, so many of them in `train`, for one epoch.
"""

import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow_model_analysis as tfma
import tfx as tfx_package
from tfx import v1 as tfx
from tfx.dsl.components.base import base_component

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
TAXI_DATA = Path(tfx_package.__file__).parent / "examples" / "chicago_taxi_pipeline" / "data" / "simple"


def bound(**bounds):
    return tfma.GenericValueThreshold(**{name: {"value": value} for name, value in bounds.items()})


def metric(name, value=None, change=None):
    if value is None and change is None:
        return tfma.MetricConfig(class_name=name)
    return tfma.MetricConfig(class_name=name, threshold=tfma.MetricThreshold(value_threshold=value, change_threshold=change))


class Example(NamedTuple):
    """The parts of a pipeline that differ between the examples.

    Attributes:
      example_gen: The ExampleGen.
      config: What the module gets as its `custom_config`.
      steps_per_epoch: Number of full batches.
      metrics: Metrics with their thresholds.
      slices: Slices to evaluate besides all examples.
    """

    example_gen: base_component.BaseComponent
    config: dict[str, Any]
    steps_per_epoch: int
    metrics: list[tfma.MetricConfig]
    slices: list[tfma.SlicingSpec]


def make_digits() -> Example:
    sys.path.insert(0, str(EXAMPLES / "digits"))
    import digits_data

    config = {"label": "digit", "not_served": "digit", "epochs": 20}
    config["hparams"] = {"hidden_units": 128, "learning_rate": 0.002}
    metrics = [
        metric("SparseCategoricalAccuracy", bound(lower_bound=0.95)),
        metric("SparseCategoricalCrossentropy", bound(upper_bound=0.3)),
        metric("ExampleCount"),
    ]
    return Example(digits_data.DigitsExampleGen(output_config=splits(train=4, eval=1)), config, 22, metrics, [])


def make_taxi(data: str = str(TAXI_DATA), steps_per_epoch: int = 156, epochs: int = 4) -> Example:
    config = {"label": "big_tipper", "not_served": "tips", "epochs": epochs, "hparams": {"learning_rate": 0.001}}
    no_worse = tfma.GenericChangeThreshold(absolute={"value": -0.01}, direction=tfma.MetricDirection.HIGHER_IS_BETTER)
    metrics = [
        metric("BinaryAccuracy", bound(lower_bound=0.65)),
        metric("AUC", bound(lower_bound=0.8), no_worse),
        metric("ExampleCount"),
    ]
    example_gen = tfx.components.CsvExampleGen(input_base=data, output_config=splits(train=2, eval=1))
    return Example(example_gen, config, steps_per_epoch, metrics, [tfma.SlicingSpec(feature_keys=["trip_start_hour"])])


def splits(**buckets):
    split = tfx.proto.SplitConfig.Split
    return tfx.proto.Output(
        split_config=tfx.proto.SplitConfig(splits=[split(name=name, hash_buckets=n) for name, n in buckets.items()])
    )


def make_pipeline(name: str, root: str, *data: str) -> tfx.dsl.Pipeline:
    if data:
        example = make_taxi(data[0], steps_per_epoch=int(data[1]) // 64, epochs=1)
    else:
        example = {"digits": make_digits, "taxi": make_taxi}[name]()
    example_gen, config, steps_per_epoch, metrics, slices = example
    module_file = str(make_module(name, Path(root, "module")))
    statistics = tfx.components.StatisticsGen(examples=example_gen.outputs["examples"])
    schema = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
    validator = tfx.components.ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    transform = tfx.components.Transform(
        examples=example_gen.outputs["examples"], schema=schema.outputs["schema"], module_file=module_file
    )
    trainer = tfx.components.Trainer(
        module_file=module_file,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        train_args=tfx.proto.TrainArgs(num_steps=config["epochs"] * steps_per_epoch),
        eval_args=tfx.proto.EvalArgs(),
        custom_config=config,
    )
    components = [example_gen, statistics, schema, validator, transform, trainer]
    baseline = None
    if any(each.threshold.HasField("change_threshold") for each in metrics):
        resolver = tfx.dsl.Resolver(
            strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
            model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
            model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
        ).with_id("latest_blessed_model")
        components.append(resolver)
        baseline = resolver.outputs["model"]
    evaluator = tfx.components.Evaluator(
        examples=example_gen.outputs["examples"],
        model=trainer.outputs["model"],
        baseline_model=baseline,
        eval_config=tfma.EvalConfig(
            model_specs=[
                tfma.ModelSpec(
                    signature_name="serving_default",
                    label_key=config["label"],
                    preprocessing_function_names=["transform_features"],
                )
            ],
            slicing_specs=[tfma.SlicingSpec(), *slices],
            metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
        ),
    )
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=f"{root}/serving")
        ),
    )
    return tfx.dsl.Pipeline(
        pipeline_name=name,
        pipeline_root=f"{root}/artifacts",
        components=[*components, evaluator, pusher],
        enable_cache=True,
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(f"{root}/metadata.sqlite"),
    )


def make_module(name: str, folder: Path) -> Path:
    """Copies the example's module next to the `run_fn`; TFX packages the folder."""
    folder.mkdir(parents=True)
    shutil.copy(EXAMPLES / name / "model.py", folder)
    return Path(shutil.copy(HERE / "stock_module.py", folder))


if __name__ == "__main__":
    tfx.orchestration.LocalDagRunner().run(make_pipeline(*sys.argv[1:]))

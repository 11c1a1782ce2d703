"""Runs the digits pipeline with stock TFX components, written like TFX's own examples.

python benchmarks/stock/digits_pipeline.py ROOT
"""

import sys
from pathlib import Path

import tensorflow_model_analysis as tfma
from tfx import v1 as tfx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples" / "digits"))

import digits_data  # noqa: E402 (in the folder of the example)

EPOCHS = 20
STEPS_PER_EPOCH = 22


def make_pipeline(root: str) -> tfx.dsl.Pipeline:
    module_file = str(HERE / "digits_module.py")
    split = tfx.proto.SplitConfig.Split
    example_gen = digits_data.DigitsExampleGen(
        output_config=tfx.proto.Output(
            split_config=tfx.proto.SplitConfig(
                splits=[split(name="train", hash_buckets=4), split(name="eval", hash_buckets=1)]
            )
        )
    )
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
        train_args=tfx.proto.TrainArgs(num_steps=EPOCHS * STEPS_PER_EPOCH),
        eval_args=tfx.proto.EvalArgs(),
        custom_config={"epochs": EPOCHS},
    )
    evaluator = tfx.components.Evaluator(
        examples=example_gen.outputs["examples"],
        model=trainer.outputs["model"],
        eval_config=tfma.EvalConfig(
            model_specs=[
                tfma.ModelSpec(
                    signature_name="serving_default",
                    label_key="digit",
                    preprocessing_function_names=["transform_features"],
                )
            ],
            slicing_specs=[tfma.SlicingSpec()],
            metrics_specs=[
                tfma.MetricsSpec(
                    metrics=[
                        tfma.MetricConfig(
                            class_name="SparseCategoricalAccuracy",
                            threshold=tfma.MetricThreshold(
                                value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.95})
                            ),
                        ),
                        tfma.MetricConfig(
                            class_name="SparseCategoricalCrossentropy",
                            threshold=tfma.MetricThreshold(
                                value_threshold=tfma.GenericValueThreshold(upper_bound={"value": 0.3})
                            ),
                        ),
                        tfma.MetricConfig(class_name="ExampleCount"),
                    ]
                )
            ],
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
        pipeline_name="digits",
        pipeline_root=f"{root}/artifacts",
        components=[example_gen, statistics, schema, validator, transform, trainer, evaluator, pusher],
        enable_cache=True,
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(f"{root}/metadata.sqlite"),
        beam_pipeline_args=["--direct_running_mode=in_memory"],
    )


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    tfx.orchestration.LocalDagRunner().run(make_pipeline(sys.argv[1]))

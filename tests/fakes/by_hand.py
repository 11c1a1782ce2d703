"""Defines a component and a pipeline in TFX's API, without a pipeline file."""

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
from tfx.orchestration import data_types, pipeline
from tfx.types import channel, standard_artifacts


@component
def make_model(
    model: OutputArtifact[standard_artifacts.Model],
    size_of_model: OutputArtifact[standard_artifacts.Integer],
    size: Parameter[int],
):
    """Has an underscore in its name; never runs, since it is only compiled."""


def make_trainer(examples, node: str = "Trainer", **arguments):
    """Returns a Trainer of one epoch on raw examples, without the target's launcher."""
    from tfx_distribute.components import Trainer

    known = {"build_model": "model.build_model", "label": "digit", "epochs": 1}
    return Trainer(examples=examples.outputs["examples"], **(known | arguments)).with_id(node)


def two_trainers() -> list:
    """Returns an ExampleGen, and the Trainers `Small` and `Large` of its examples."""
    from tfx.components import CsvExampleGen

    examples = CsvExampleGen("gs://bucket/data")
    return [examples, make_trainer(examples, "Small"), make_trainer(examples, "Large")]


def latest_blessed(node: str = "blessed", **channels: channel.Channel) -> resolver.Resolver:
    """Returns a resolver of the latest blessed model.

    Args:
      node: Its id.
      **channels: Its channels, of a model and of a blessing; any by default.
    """
    kinds = {"model": standard_artifacts.Model, "model_blessing": standard_artifacts.ModelBlessing}
    channels = channels or {name: channel.Channel(type=kind) for name, kind in kinds.items()}
    strategy = latest_blessed_model_strategy.LatestBlessedModelStrategy
    return resolver.Resolver(strategy_class=strategy, **channels).with_id(node)


def trained(root: str) -> pipeline.Pipeline:
    """Returns a pipeline with a Trainer that does not set the target's launcher."""
    from tfx.components import CsvExampleGen, SchemaGen, StatisticsGen

    from tfx_distribute.components import Trainer

    examples = CsvExampleGen("gs://bucket/data")
    statistics = StatisticsGen(examples=examples.outputs["examples"])
    schema = SchemaGen(statistics=statistics.outputs["statistics"])
    trainer = Trainer(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        build_model="model.build_model",
        label="digit",
        strategy=data_types.RuntimeParameter("strategy", str, default="multi_worker_mirrored"),
        num_workers=data_types.RuntimeParameter("num_workers", int, default=2),
        epochs=1,
    )
    return pipeline.Pipeline("by-hand", root, components=[examples, statistics, schema, trainer])

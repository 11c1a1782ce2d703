"""Compiles pipelines that are written in Python for Vertex AI."""

from by_hand import latest_blessed, make_model
from compiled_for_vertex import TARGET
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies import latest_artifact_strategy
from tfx.orchestration.pipeline import Pipeline
from tfx.types import channel, standard_artifacts

from tfx_distribute.pipelines.targets.vertex import compiler
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings


def test_resolvers_wait_for_what_the_pipeline_says():
    models = channel.Channel(type=standard_artifacts.Model)
    latest = resolver.Resolver(latest_artifact_strategy.LatestArtifactStrategy, model=models).with_id("latest")
    blessed = latest_blessed()
    first, last = make_model(size=1).with_id("first"), make_model(size=1).with_id("last")
    blessed.add_upstream_node(first)
    latest.add_upstream_node(blessed)
    last.add_upstream_node(latest)
    handwritten = Pipeline("by-hand", "gs://bucket/root", components=[first, blessed, latest, last])
    tasks = compiler.compile_pipeline(handwritten, VertexSettings(**TARGET), {}).pipeline["pipelineSpec"]["root"]["dag"][
        "tasks"
    ]
    assert {name: task.get("dependentTasks") for name, task in tasks.items()} == {
        "first": None,
        "blessed-model-blessing-resolver": ["first"],
        "blessed-model-resolver": None,  # it reads what the one before has found
        "latest": ["blessed-model-resolver"],
        "last": ["latest"],
    }

"""Tests that what a node depends on runs, and nothing else."""

import pytest
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration import data_types, pipeline
from tfx.types import standard_artifacts

from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.pipelines.targets.local import runner, runs
from tfx_distribute.pipelines.targets.local.upstream import UpstreamRunner


@component
def First(data: OutputArtifact[standard_artifacts.Examples]) -> None:  # noqa: N802
    del data


@component
def Second(  # noqa: N802
    data: InputArtifact[standard_artifacts.Examples], made: OutputArtifact[standard_artifacts.Examples]
) -> None:
    del data, made


@component
def Other(data: InputArtifact[standard_artifacts.Examples]) -> None:  # noqa: N802
    del data


@component
def Target(data: InputArtifact[standard_artifacts.Examples], size: Parameter[int]) -> None:  # noqa: N802
    raise AssertionError("does not run")


@pytest.fixture
def run(tmp_path):
    def run(run_id):
        first = First()
        second = Second(data=first.outputs["data"])
        size = data_types.RuntimeParameter("size", int, default=1)
        target = Target(data=second.outputs["made"], size=size)
        one_run = pipeline.Pipeline(
            pipeline_name="mine",
            pipeline_root=str(tmp_path / "root"),
            components=[first, second, Other(data=first.outputs["data"]), target],
            enable_cache=True,
            metadata_connection_config=tfx_pipeline.make_sqlite_config(str(tmp_path / "metadata.sqlite")),
        )
        ended = {}

        def listen(event):
            if isinstance(event, runner.NodeEnded):
                ended[event.node] = event.cached

        upstream = UpstreamRunner("Target", {"size": 7}, listen, run_id)
        upstream.run(one_run)
        return ended, upstream.inputs

    return run


def test_upstream_nodes_run_once_and_come_from_the_cache(run, tmp_path):
    ended, inputs = run("compare-1")
    assert ended == {"First": False, "Second": False}
    (artifact,) = inputs.artifacts["data"]
    assert "/Second/made/" in artifact.uri
    assert inputs.exec_properties["size"] == 7

    again, same = run("compare-2")
    assert again == {"First": True, "Second": True}
    assert same.artifacts["data"][0].uri == artifact.uri
    assert {found.id for found in runs.list_runs([tmp_path])} == {"compare-1", "compare-2"}

"""Tests that a node has succeeded only if it has done its work."""

import shutil
import sys
from pathlib import Path

import pytest
from tfx.dsl.component.experimental.annotations import OutputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration import pipeline
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts

from tfx_distribute.components import Pusher
from tfx_distribute.pipelines.runners import tfx_pipeline
from tfx_distribute.pipelines.runners.local import runner as local_runner


class Stop(BaseException):
    """An error that `except Exception` does not catch."""


@component
def Exiting() -> None:  # noqa: N802
    sys.exit(0)


@component
def Stopping() -> None:  # noqa: N802
    raise Stop


@component
def Interrupted() -> None:  # noqa: N802
    raise KeyboardInterrupt


@component
def Model(model: OutputArtifact[standard_artifacts.Model]) -> None:  # noqa: N802
    folder = Path(model.uri) / "Format-Serving"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"model")


@pytest.fixture
def run(tmp_path):
    """Runs a pipeline; returns each node that ended, and True if it came from cache."""
    ended = {}

    def listen(event):
        if isinstance(event, local_runner.NodeEnded):
            ended[event.node] = event.cached

    def run(*nodes):
        ended.clear()
        one_run = pipeline.Pipeline(
            pipeline_name="mine",
            pipeline_root=str(tmp_path / "root"),
            components=list(nodes),
            enable_cache=True,
            metadata_connection_config=tfx_pipeline.make_sqlite_config(str(tmp_path / "metadata.sqlite")),
        )
        local_runner.LocalRunner(listener=listen).run(one_run)
        return dict(ended)

    run.ended = ended
    return run


@pytest.mark.parametrize(
    ("node", "expected"),
    [(Exiting, local_runner.NodeError), (Stopping, local_runner.NodeError), (Interrupted, KeyboardInterrupt)],
)
def test_node_that_leaves_has_failed(run, node, expected):
    with pytest.raises(expected):
        run(node())
    assert run.ended == {}


def test_model_is_pushed_again_only_where_its_version_has_been_removed(run, tmp_path):
    serving = tmp_path / "serving"

    def push():
        model = Model()
        destination = pusher_pb2.PushDestination(filesystem={"base_directory": str(serving)})
        return run(model, Pusher(model=model.outputs["model"], push_destination=destination))

    assert push() == {"Model": False, "Pusher": False}
    (first,) = serving.iterdir()
    assert push() == {"Model": True, "Pusher": True}
    assert list(serving.iterdir()) == [first]
    shutil.rmtree(first)
    assert push() == {"Model": True, "Pusher": False}
    (second,) = serving.iterdir()
    assert (second / "saved_model.pb").read_bytes() == b"model"
    assert push() == {"Model": True, "Pusher": True}
    assert list(serving.iterdir()) == [second]

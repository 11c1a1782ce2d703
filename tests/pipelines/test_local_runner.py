"""LocalRunner: a node has succeeded only if it has done its work."""

import sys

import pytest
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration import pipeline

from tfx_distribute.pipelines import graph
from tfx_distribute.pipelines.runners import local


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


@pytest.mark.parametrize(
    ("node", "expected"), [(Exiting, local.NodeError), (Stopping, local.NodeError), (Interrupted, KeyboardInterrupt)]
)
def test_node_that_leaves_has_failed(tmp_path, node, expected):
    nodes = [node()]
    made = pipeline.Pipeline(
        pipeline_name="mine",
        pipeline_root=str(tmp_path / "root"),
        components=nodes,
        metadata_connection_config=graph.sqlite(str(tmp_path / "metadata.sqlite")),
    )
    ended = []
    with pytest.raises(expected):
        local.LocalRunner(listener=lambda event: ended.append(event) if isinstance(event, local.NodeEnded) else None).run(
            made
        )
    assert ended == []

"""Tests that a node has succeeded only if it has done its work."""

import sys

import pytest
from tfx.dsl.component.experimental.decorators import component

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


@pytest.mark.parametrize(
    ("node", "expected"),
    [(Exiting, local_runner.NodeError), (Stopping, local_runner.NodeError), (Interrupted, KeyboardInterrupt)],
)
def test_node_that_leaves_has_failed(run, tmp_path, node, expected):
    ended = {}
    with pytest.raises(expected):
        run(tmp_path, node(), ended=ended)
    assert ended == {}

"""Tests that a node has succeeded only if it has done its work."""

import sys

import pytest
from tfx.dsl.component.experimental.annotations import InputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.types import channel, standard_artifacts

from tfx_distribute.pipelines.targets.local import runner as local_runner


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
def Reading(model: InputArtifact[standard_artifacts.Model]) -> None:  # noqa: N802
    print(model.uri)


def test_node_without_its_input_has_failed(run, tmp_path):
    """TFX records the failure, and goes on."""
    ended = {}
    with pytest.raises(local_runner.NodeError) as caught:
        run(tmp_path, Reading(model=channel.Channel(type=standard_artifacts.Model)), ended=ended)
    assert "it was not run: " in str(caught.value.__cause__)
    assert "inputs[model] has min_count = 1 but only got 0 artifacts" in str(caught.value.__cause__)
    assert ended == {}


@pytest.mark.parametrize(
    ("node", "expected"),
    [(Exiting, local_runner.NodeError), (Stopping, local_runner.NodeError), (Interrupted, KeyboardInterrupt)],
)
def test_node_that_leaves_has_failed(run, tmp_path, node, expected):
    ended = {}
    with pytest.raises(expected):
        run(tmp_path, node(), ended=ended)
    assert ended == {}

"""Tests the Sharder's arguments and outputs."""

import pytest
from tfx import types
from tfx.orchestration import data_types
from tfx.types import standard_artifacts

from tfx_distribute.components import Sharder
from tfx_distribute.trainer_module.errors import ConfigurationError


def channel(kind: type) -> types.Channel:
    return types.Channel(type=kind)


EXAMPLES = channel(standard_artifacts.Examples)
GRAPH = channel(standard_artifacts.TransformGraph)
SCHEMA = channel(standard_artifacts.Schema)


def test_outputs():
    sharder = Sharder(examples=EXAMPLES, transform_graph=GRAPH)
    assert {name: output.type for name, output in sharder.outputs.items()} == {
        "sharded_examples": standard_artifacts.Examples
    }


def test_each_parameter_takes_a_runtime_parameter():
    kinds = {"num_shards": int, "num_workers": int, "compression": str, "seed": int}
    parameters = {name: data_types.RuntimeParameter(name, kind) for name, kind in kinds.items()}
    assert Sharder(examples=EXAMPLES, schema=SCHEMA, **parameters).spec.exec_properties == parameters


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of transform_graph and schema must be supplied"),
        ({"transform_graph": GRAPH, "schema": SCHEMA}, "exactly one of transform_graph and schema must be supplied"),
        ({"schema": SCHEMA, "num_shards": -1}, "^num_shards: -1 is too small; write a number, or 0"),
        ({"schema": SCHEMA, "compression": "zip"}, "^compression: 'zip' is not known; choose one of none, gzip"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Sharder(examples=EXAMPLES, **arguments)

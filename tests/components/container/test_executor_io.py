"""Tests the documents that a step on Kubeflow reads and writes."""

import json

import pytest
from tfx.components.util import examples_utils
from tfx.types import artifact_utils, standard_artifacts

from tfx_distribute.components.container import executor_io

INTERFACE = {
    "inputs": {"examples": "tfx.Examples", "anomalies": "tfx.ExampleAnomalies"},
    "outputs": {"model": "tfx.Model"},
    "integer": ["epochs"],
    "double": ["clipnorm"],
}
EXECUTOR_INPUT = {
    "inputs": {
        "artifacts": {
            "examples": {
                "artifacts": [
                    {
                        "name": "17",
                        "uri": "s3://bucket/run/examples",
                        "type": {"instanceSchema": ""},
                        "metadata": {
                            "split_names": '["train", "eval"]',
                            "span": 3,
                            "custom:span": 4,
                            "payload_format": "FORMAT_TF_EXAMPLE",
                            "blessed": 1,
                            "shards": {"list": [1, 2]},
                            "by_split": {"struct": {"eval": 1}},
                            "display_name": "examples",
                            "store_session_info": "{}",
                            "nothing": None,
                        },
                    }
                ]
            },
            "anomalies": {"artifacts": []},
        },
        "parameterValues": {"epochs": 20.0, "clipnorm": 1, "strategy": "mirrored", "not_given": None},
    },
    "outputs": {
        "artifacts": {
            "model": {
                "artifacts": [{"name": "model", "uri": "s3://bucket/run/model", "type": {"schemaTitle": "tfx.Model"}}]
            },
            "executor-logs": {"artifacts": [{"name": "executor-logs", "uri": "s3://bucket/run/log"}]},
        },
        "outputFile": "/s3/bucket/run/output_metadata.json",
    },
}
PATHS = {"inputs/examples": "/s3/bucket/run/examples", "outputs/model": "/s3/bucket/run/model"}


@pytest.fixture
def execution():
    return executor_io.read(EXECUTOR_INPUT, INTERFACE, PATHS)


def test_types_are_restored_and_additions_of_kubeflow_are_dropped(execution):
    (examples,) = execution.inputs["examples"]
    assert isinstance(examples, standard_artifacts.Examples)
    assert (execution.names[examples.id], examples.uri, examples.span) == ("17", "/s3/bucket/run/examples", 3)
    assert artifact_utils.decode_split_names(examples.split_names) == ["train", "eval"]
    assert examples_utils.get_payload_format_string(examples) == "FORMAT_TF_EXAMPLE"
    assert list(execution.inputs) == ["examples"], "the other has no artifacts"
    assert list(execution.outputs) == ["model"]


def test_metadata_are_unwrapped(execution):
    (examples,) = execution.inputs["examples"]
    assert examples.get_int_custom_property("blessed") == 1, "whole numbers can be read as such"
    assert examples.get_json_value_custom_property("shards") == [1.0, 2.0]
    assert examples.get_json_value_custom_property("by_split") == {"eval": 1.0}
    assert examples.get_int_custom_property("span") == 4, "separate from the property of that name"
    assert not examples.has_custom_property("store_session_info")


def test_parameters_have_their_types(execution):
    assert execution.exec_properties == {"epochs": 20, "clipnorm": 1.0, "strategy": "mirrored"}
    assert [type(value) for value in execution.exec_properties.values()] == [int, float, str]


def test_output_has_addresses(execution):
    (model,) = execution.outputs["model"]
    model.set_string_custom_property("strategy", "mirrored")
    model.set_int_custom_property("num_replicas", 2)
    model.set_string_custom_property("pushed", "/s3/bucket/run/model/1")
    model.set_json_value_custom_property("losses", [1.0])
    model.set_json_value_custom_property("nothing", None)
    output = executor_io.make_executor_output(execution, {"resolved": "x"})
    assert json.loads(json.dumps(output)) == {
        "artifacts": {
            "model": {
                "artifacts": [
                    {
                        "name": "model",
                        "uri": "s3://bucket/run/model",
                        "metadata": {
                            "strategy": "mirrored",
                            "num_replicas": 2,
                            "pushed": "s3://bucket/run/model/1",
                            "losses": [1.0],
                        },
                    }
                ]
            }
        },
        "parameterValues": {"resolved": "x"},
    }


def test_the_next_step_reads_what_was_written(execution):
    (examples,) = execution.inputs["examples"]
    outputs = executor_io.Execution({}, {"examples": [examples]}, {}, execution.addresses, execution.names)
    written = executor_io.make_executor_output(outputs)["artifacts"]["examples"]
    read = executor_io.read({"inputs": {"artifacts": {"examples": written}}}, INTERFACE, PATHS).inputs["examples"][0]
    assert read.split_names == examples.split_names
    assert read.span == 3
    assert read.get_int_custom_property("span") == 4
    assert read.get_json_value_custom_property("by_split") == {"eval": 1.0}


def test_drivers_of_earlier_versions_give_outputs_no_name():
    executor_input = json.loads(json.dumps(EXECUTOR_INPUT))
    del executor_input["outputs"]["artifacts"]["model"]["artifacts"][0]["name"]
    output = executor_io.make_executor_output(executor_io.read(executor_input, INTERFACE, PATHS))
    (model,) = output["artifacts"]["model"]["artifacts"]
    assert (model["name"], model["uri"]) == ("", "s3://bucket/run/model")


def test_gs_is_left_to_tfx():
    executor_input = json.loads(json.dumps(EXECUTOR_INPUT).replace("s3://", "gs://"))
    execution = executor_io.read(
        executor_input, INTERFACE, {name: path.replace("/s3", "/gcs") for name, path in PATHS.items()}
    )
    assert execution.inputs["examples"][0].uri == "gs://bucket/run/examples"
    assert execution.addresses == {}

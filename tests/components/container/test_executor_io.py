import json

import pytest
from tfx.components.util import examples_utils
from tfx.types import artifact_utils, standard_artifacts

from tfx_distribute.components.container import executor_io as execution_lib
from tfx_distribute.trainer_module.errors import ConfigurationError

EXAMPLES = "title: tfx.Examples\ntype: object\n"
COMPONENT = {
    "inputDefinitions": {
        "artifacts": {
            "examples": {"artifactType": {"instanceSchema": EXAMPLES}},
            "anomalies": {"artifactType": {"schemaTitle": "tfx.ExampleAnomalies"}},
        },
        "parameters": {
            "epochs": {"parameterType": "NUMBER_INTEGER"},
            "clipnorm": {"parameterType": "NUMBER_DOUBLE"},
            "strategy": {"parameterType": "STRING"},
            "not_given": {"parameterType": "STRING"},
        },
    },
    "outputDefinitions": {"artifacts": {"model": {"artifactType": {"schemaTitle": "tfx.Model"}}}},
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
        "parameterValues": {"epochs": 20.0, "clipnorm": 1, "strategy": "mirrored", "not_given": None, "of_another": 1},
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
    return execution_lib.read(EXECUTOR_INPUT, COMPONENT, PATHS)


def test_types_are_restored_and_what_is_added_is_dropped(execution):
    (examples,) = execution.inputs["examples"]
    assert isinstance(examples, standard_artifacts.Examples)
    assert (examples.id, examples.uri, examples.span) == (17, "/s3/bucket/run/examples", 3)
    assert artifact_utils.decode_split_names(examples.split_names) == ["train", "eval"]
    assert examples_utils.get_payload_format_string(examples) == "FORMAT_TF_EXAMPLE"
    assert list(execution.inputs) == ["examples"], "none was given of the other"
    assert list(execution.outputs) == ["model"]


def test_metadata_are_unwrapped(execution):
    (examples,) = execution.inputs["examples"]
    assert examples.get_int_custom_property("blessed") == 1, "a whole number is one, though JSON has no such"
    assert examples.get_json_value_custom_property("shards") == [1.0, 2.0]
    assert examples.get_json_value_custom_property("by_split") == {"eval": 1.0}
    assert examples.get_int_custom_property("span") == 4, "of its own, beside the property of that name"
    assert not examples.has_custom_property("store_session_info")


def test_parameters_have_their_types(execution):
    assert execution.exec_properties == {"epochs": 20, "clipnorm": 1.0, "strategy": "mirrored"}
    assert [type(value) for value in execution.exec_properties.values()] == [int, float, str]


def test_output_is_told_with_addresses(execution):
    (model,) = execution.outputs["model"]
    model.set_string_custom_property("strategy", "mirrored")
    model.set_int_custom_property("num_replicas", 2)
    model.set_string_custom_property("pushed", "/s3/bucket/run/model/1")
    model.set_json_value_custom_property("losses", [1.0])
    model.set_json_value_custom_property("nothing", None)
    told = execution_lib.executor_output(execution, {"resolved": "x"})
    assert json.loads(json.dumps(told)) == {
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


def test_what_is_written_is_read_again(execution):
    """As by the next step."""
    (examples,) = execution.inputs["examples"]
    outputs = execution_lib.Execution({}, {"examples": [examples]}, {}, execution.addresses)
    told = execution_lib.executor_output(outputs)["artifacts"]["examples"]
    again = execution_lib.read({"inputs": {"artifacts": {"examples": told}}}, COMPONENT, PATHS).inputs["examples"][0]
    assert again.split_names == examples.split_names
    assert again.span == 3
    assert again.get_int_custom_property("span") == 4
    assert again.get_json_value_custom_property("by_split") == {"eval": 1.0}


def test_several_artifacts_are_refused():
    told = json.loads(json.dumps(EXECUTOR_INPUT))
    told["inputs"]["artifacts"]["examples"]["artifacts"] *= 2
    with pytest.raises(ConfigurationError, match="examples: 2 artifacts are given"):
        execution_lib.read(told, COMPONENT, PATHS)


def test_gs_is_left_to_tfx():
    told = json.loads(json.dumps(EXECUTOR_INPUT).replace("s3://", "gs://"))
    execution = execution_lib.read(told, COMPONENT, {name: path.replace("/s3", "/gcs") for name, path in PATHS.items()})
    assert execution.inputs["examples"][0].uri == "gs://bucket/run/examples"
    assert execution.addresses == {}

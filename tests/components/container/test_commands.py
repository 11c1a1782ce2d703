"""Tests the commands of a pipeline's step on Kubeflow."""

import json
from typing import ClassVar

from apache_beam.options.pipeline_options import PipelineOptions
from ml_metadata.proto import metadata_store_pb2 as pb
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.types import standard_artifacts
from tfx.utils import name_utils

from tfx_distribute.components.container import BLESSING, NO_ARTIFACT, RESOLVED_INPUT, commands

DRIVER = name_utils.get_full_name(FileBasedExampleGen.DRIVER_CLASS)
INTERFACE = {"inputs": {}, "outputs": {}, "integer": [], "double": []}


def resolve(tmp_path, pattern="span-{SPAN}/*"):
    output_file = tmp_path / "out" / "output_metadata.json"
    values = {
        "input_base": str(tmp_path / "data"),
        "input_config": json.dumps({"splits": [{"name": "all", "pattern": pattern}]}),
    }
    executor_input = {"inputs": {"parameterValues": values}, "outputs": {"outputFile": str(output_file)}}
    commands.resolve_input(DRIVER, executor_input, INTERFACE)
    document = json.loads(output_file.read_text())
    return json.loads(document["parameterValues"][RESOLVED_INPUT])


def test_input_is_resolved_and_fingerprinted(tmp_path):
    for span in (1, 2):
        (tmp_path / "data" / f"span-{span}").mkdir(parents=True)
        (tmp_path / "data" / f"span-{span}" / "a.csv").write_text("x\n1\n")
    first = resolve(tmp_path)
    assert first["span"] == 2, "the latest"
    assert "span-2" in first["input_config"]
    assert resolve(tmp_path) == first
    (tmp_path / "data" / "span-2" / "a.csv").write_text("x\n1\n2\n")
    changed = resolve(tmp_path)
    assert changed["input_fingerprint"] != first["input_fingerprint"]
    assert {**changed, "input_fingerprint": 0} == {**first, "input_fingerprint": 0}


class RecordingExecutor:
    """An executor that keeps its arguments."""

    arguments: ClassVar[dict] = {}

    def __init__(self, context):
        self.context = context

    def Do(self, inputs, outputs, properties):  # noqa: N802 (TFX's name)
        RecordingExecutor.arguments = {"inputs": inputs, "outputs": outputs, "properties": properties}


def test_the_address_for_no_model_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(commands.import_utils, "import_class_by_path", _class)
    interface = {**INTERFACE, "inputs": {"model": "tfx.Model", "baseline_model": "tfx.Model"}}
    executor_input = {
        "inputs": {
            "artifacts": {
                "model": {"artifacts": [{"name": "1", "uri": "gs://b/model"}]},
                "baseline_model": {"artifacts": [{"name": "2", "uri": f"gs://b/{NO_ARTIFACT}"}]},
            }
        },
        "outputs": {"outputFile": str(tmp_path / "output_metadata.json")},
    }
    exempted = []
    monkeypatch.setattr(commands.autograph, "exempt_libraries", lambda: exempted.append(True))  # cannot be undone
    commands.execute("executor", executor_input, interface, {}, [])
    assert exempted
    assert hasattr(PipelineOptions.view_as, "__wrapped__"), "Beam remembers views"
    assert list(RecordingExecutor.arguments["inputs"]) == ["model"]
    assert json.loads((tmp_path / "output_metadata.json").read_text()) == {"artifacts": {}, "parameterValues": {}}


def _class(path):
    return {"executor": RecordingExecutor, "tfx.types.standard_artifacts.Model": standard_artifacts.Model}[path]


def blessing(model, blessed, at):
    artifact = pb.Artifact(uri=f"{model}-blessing", create_time_since_epoch=at)
    artifact.custom_properties["blessed"].double_value = blessed  # as KFP stores numbers
    artifact.custom_properties["current_model"].string_value = model
    return artifact


def select(blessings, root):
    return commands.select_latest(blessings, root, BLESSING)


def test_the_latest_blessed_model():
    blessings = [blessing("s3://b/1", 1.0, 100), blessing("s3://b/2", 1.0, 300), blessing("s3://b/3", 0.0, 400)]
    assert select(blessings, "s3://b") == select(blessings, "s3://b/") == "s3://b/2"
    assert select(blessings, "s3://ours") is None, "another team's pipeline has the same name"
    assert select(blessings[2:], "s3://b") is None, "nothing was blessed yet"
    assert select([], "s3://b") is None


def test_the_latest_artifact_of_another_type():
    places = ((100, "s3://b/1"), (300, "s3://b/2"), (400, "s3://other/3"))
    artifacts = [pb.Artifact(uri=uri, create_time_since_epoch=at) for at, uri in places]
    assert commands.select_latest(artifacts, "s3://b", "tfx.ExampleAnomalies") == "s3://b/2"

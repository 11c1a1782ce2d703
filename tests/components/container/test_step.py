import json
from typing import ClassVar

import pytest
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.types import standard_artifacts
from tfx.utils import name_utils

from tfx_distribute.components.container import step
from tfx_distribute.components.container.names import NO_MODEL, RESOLVED_INPUT
from tfx_distribute.components.launchers.staging import staged
from tfx_distribute.trainer_module.errors import ConfigurationError

DRIVER = name_utils.get_full_name(FileBasedExampleGen.DRIVER_CLASS)
STRING = {"parameterType": "STRING"}
INTERFACE = {"inputDefinitions": {"parameters": {"input_base": STRING, "input_config": STRING}}}


def resolved(tmp_path, pattern="span-{SPAN}/*"):
    output_file = tmp_path / "out" / "output_metadata.json"
    values = {
        "input_base": str(tmp_path / "data"),
        "input_config": json.dumps({"splits": [{"name": "all", "pattern": pattern}]}),
    }
    told = {"inputs": {"parameterValues": values}, "outputs": {"outputFile": str(output_file)}}
    step.resolve_input(DRIVER, told, INTERFACE)
    document = json.loads(output_file.read_text())
    return json.loads(document["parameterValues"][RESOLVED_INPUT])


def test_input_is_resolved_and_known_by_its_files(tmp_path):
    for span in (1, 2):
        (tmp_path / "data" / f"span-{span}").mkdir(parents=True)
        (tmp_path / "data" / f"span-{span}" / "a.csv").write_text("x\n1\n")
    first = resolved(tmp_path)
    assert first["span"] == 2, "the latest"
    assert "span-2" in first["input_config"]
    assert resolved(tmp_path) == first
    (tmp_path / "data" / "span-2" / "a.csv").write_text("x\n1\n2\n")
    changed = resolved(tmp_path)
    assert changed["input_fingerprint"] != first["input_fingerprint"]
    assert {**changed, "input_fingerprint": 0} == {**first, "input_fingerprint": 0}


class Remembers:
    """An executor that keeps what it was told."""

    told: ClassVar[dict] = {}

    def __init__(self, context):
        self.context = context

    def Do(self, inputs, outputs, properties):  # noqa: N802 (TFX's name)
        Remembers.told = {"inputs": inputs, "outputs": outputs, "properties": properties}


def test_an_input_that_stands_for_none_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(step.import_utils, "import_class_by_path", _class)
    kind = {"artifactType": {"schemaTitle": "tfx.Model"}}
    component = {"inputDefinitions": {"artifacts": {"model": kind, "baseline_model": kind}}}
    given = {
        "inputs": {
            "artifacts": {
                "model": {"artifacts": [{"name": "1", "uri": "gs://b/model"}]},
                "baseline_model": {"artifacts": [{"name": "2", "uri": f"gs://b/{NO_MODEL}"}]},
            }
        },
        "outputs": {"outputFile": str(tmp_path / "output_metadata.json")},
    }
    step.execute("executor", given, component, {}, [])
    assert list(Remembers.told["inputs"]) == ["model"]
    assert json.loads((tmp_path / "output_metadata.json").read_text()) == {"artifacts": {}, "parameterValues": {}}


def _class(path):
    return {"executor": Remembers, "tfx.types.standard_artifacts.Model": standard_artifacts.Model}[path]


def model(uri):
    artifact = standard_artifacts.Model()
    artifact.uri = str(uri)
    return artifact


def test_what_pods_cannot_reach_is_put_where_they_can_and_brought_back(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("read")
    inputs = {"base_model": [model(tmp_path / "in"), model("gs://b/elsewhere")]}
    outputs = {"model": [model(tmp_path / "out")]}
    with staged(inputs, outputs, str(tmp_path / "shared"), is_shared=True) as (there, made):
        near, far = there["base_model"]
        assert (near.uri, far.uri) == (str(tmp_path / "shared/inputs/base_model-0"), "gs://b/elsewhere")
        assert (tmp_path / "shared/inputs/base_model-0/file").read_text() == "read"
        (tmp_path / "shared/outputs/model-0/file").write_text("written")
        assert made["model"][0].uri == str(tmp_path / "shared/outputs/model-0")
    assert inputs["base_model"][0].uri == str(tmp_path / "in"), "what was given is as it was"
    assert (tmp_path / "out" / "file").read_text() == "written"


def test_nothing_shared_is_known(tmp_path):
    with (
        pytest.raises(ConfigurationError, match="training_dir: is missing; the pods of the training cannot reach"),
        staged({"examples": [model(tmp_path)]}, {}, str(tmp_path), is_shared=False),
    ):
        pass

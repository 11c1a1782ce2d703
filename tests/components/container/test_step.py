import json
from typing import ClassVar

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.types import standard_artifacts
from tfx.utils import name_utils

from tfx_distribute.components.container import commands
from tfx_distribute.components.container.names import NO_MODEL, RESOLVED_INPUT

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
    commands.resolve_input(DRIVER, told, INTERFACE)
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
    monkeypatch.setattr(commands.import_utils, "import_class_by_path", _class)
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
    commands.execute("executor", given, component, {}, [])
    assert list(Remembers.told["inputs"]) == ["model"]
    assert json.loads((tmp_path / "output_metadata.json").read_text()) == {"artifacts": {}, "parameterValues": {}}


def _class(path):
    return {"executor": Remembers, "tfx.types.standard_artifacts.Model": standard_artifacts.Model}[path]

import json

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from pydantic import ValidationError

from tfx_distribute.pipelines.cli import main
from tfx_distribute.pipelines.spec import Data, Parameters, PipelineSpec, Trainer


@pytest.fixture(scope="module")
def schema():
    result = CliRunner().invoke(main, ["schema"])
    assert result.exit_code == 0
    return json.loads(result.output)


def test_examples_satisfy_the_schema_that_editors_use(schema, request):
    jsonschema.Draft202012Validator.check_schema(schema)
    files = sorted((request.config.rootpath / "examples").glob("*/pipeline.yaml"))
    assert len(files) >= 2
    for file in files:
        jsonschema.validate(yaml.safe_load(file.read_text()), schema)


def test_schema_refuses_what_the_models_refuse(schema):
    document = {"name": "x", "module": "m.py", "data": {"csv": "d"}, "trainer": {"parameters": {"stratgy": "mirrored"}}}
    with pytest.raises(jsonschema.ValidationError, match="stratgy"):
        jsonschema.validate(document, schema)


def test_schema_explains_every_key(schema):
    models = [schema, *schema["$defs"].values()]
    for model in models:
        for name, key in model["properties"].items():
            assert key.get("description"), f"{model['title']}.{name}"


def test_committed_schema_is_the_current_one(schema, request):
    committed = json.loads((request.config.rootpath / "docs" / "pipeline.schema.json").read_text())
    assert committed == schema, "run `make schema`"


def test_python_makes_the_same_pipeline_as_yaml(tmp_path):
    in_python = PipelineSpec(
        name="x",
        module="model.py",
        data=Data(csv="data"),
        trainer=Trainer(label="y", parameters=Parameters(strategy="mirrored", epochs=2)),
    )
    document = yaml.safe_load(
        "{name: x, module: model.py, data: {csv: data}, trainer: {label: y, parameters: {strategy: mirrored, epochs: 2}}}"
    )
    assert PipelineSpec.model_validate(document) == in_python


def test_python_is_refused_what_yaml_is_refused():
    with pytest.raises(ValidationError, match="num_workers: strategy 'mirrored' trains in one process"):
        Parameters(strategy="mirrored", num_workers=3)


def test_paths_in_packages_and_addresses():
    assert Data(csv="package://pydantic/v1").csv.endswith("site-packages/pydantic/v1")
    assert Data(csv="gs://bucket/data").csv == "gs://bucket/data"

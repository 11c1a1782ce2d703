import json

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from pydantic import ValidationError

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.spec.pipeline import Data, Evaluate, Parameters, PipelineSpec, Train


@pytest.fixture(scope="module")
def schema():
    result = CliRunner().invoke(main, ["json-schema"])
    assert result.exit_code == 0
    return json.loads(result.output)


def test_examples_satisfy_the_schema_that_editors_use(schema, request):
    jsonschema.Draft202012Validator.check_schema(schema)
    files = sorted((request.config.rootpath / "examples").glob("*/*.yaml"))
    assert len(files) >= 10
    for file in files:
        jsonschema.validate(yaml.safe_load(file.read_text()), schema)


def test_schema_refuses_what_the_models_refuse(schema):
    document = {"name": "x", "module": "m.py", "data": {"csv": "d"}, "trainer": {"parameters": {"stratgy": "mirrored"}}}
    with pytest.raises(jsonschema.ValidationError, match="stratgy"):
        jsonschema.validate(document, schema)


def test_schema_has_null_where_a_file_may_have_it(schema):
    sections = {"": schema, **schema["$defs"]}
    keys = [(name, key, value) for name, each in sections.items() for key, value in each.get("properties", {}).items()]
    nullable = {(name, key) for name, key, value in keys if {"type": "null"} in value.get("anyOf", ())}
    assert nullable == {("Train", "label"), ("Evaluate", "label"), ("SecurityContext", "fs_group")}


def test_schema_explains_every_key(schema):
    models = [schema, *schema["$defs"].values()]
    for model in models:
        for name, key in model["properties"].items():
            assert key.get("description"), f"{model['title']}.{name}"


def test_python_makes_the_same_pipeline_as_yaml(tmp_path):
    in_python = PipelineSpec(
        name="x",
        module="model.py",
        data=Data(csv="data"),
        trainer=Train(label="y", parameters=Parameters(strategy="mirrored", epochs=2)),
    )
    document = yaml.safe_load(
        "{name: x, module: model.py, data: {csv: data}, trainer: {label: y, parameters: {strategy: mirrored, epochs: 2}}}"
    )
    assert PipelineSpec.model_validate(document) == in_python


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("Precision", {"thresholds": [0.3, 0.7]}, r"`thresholds: \[0.3, 0.7\]` makes one for each; write one of them"),
        ("TPR", {"thresholds": [0.1, 0.2, 0.3]}, "makes one for each"),
        ("PrecisionAtRecall", {"recall": [0.3, 0.7]}, "`recall:"),
        ("ConfusionMatrixAtThresholds", {"thresholds": [0.5]}, "its result is not a single number"),
        ("ScoreDistributionPlot", {}, "its result is not a single number"),
        ("Precision", {"top_k": 1, "class_id": 2}, "write top_k or class_id"),
        ("ObjectDetectionPrecision", {"class_id": 2, "iou_threshold": 0.5}, "TFMA ignores a threshold on one class"),
    ],
)
def test_threshold_on_a_metric_that_is_not_one_number(name, config, message):
    for threshold in ({"lower_bound": 0.5}, {"upper_bound": 0.5}, {"change": {"absolute": 0.0}}):
        with pytest.raises(ValidationError, match=f"metrics.{name}: .*{message}"):
            Evaluate.model_validate({"metrics": {name: {**threshold, "config": config}}})
    assert Evaluate.model_validate({"metrics": {name: {"config": config}}}), "without a threshold"


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Precision", {"thresholds": [0.5]}),
        ("Precision", {"thresholds": 0.5, "class_id": 0}),
        ("AUC", {"thresholds": [0.1, 0.5, 0.9]}),
        ("PrecisionAtRecall", {"recall": 0.5, "thresholds": [0.1, 0.9]}),
        ("SetMatchPrecision", {"top_k": 2}),
    ],
)
def test_threshold_on_a_metric_that_is_one_number(name, config):
    assert Evaluate.model_validate({"metrics": {name: {"lower_bound": 0.5, "config": config}}})


def test_python_is_checked_like_yaml():
    with pytest.raises(ValidationError, match="num_workers: strategy 'mirrored' trains in one process"):
        Parameters(strategy="mirrored", num_workers=3)


def test_paths_in_packages_and_addresses():
    assert Data(csv="package://pydantic/v1").csv.endswith("site-packages/pydantic/v1")
    assert Data(csv="gs://bucket/data").csv == "gs://bucket/data"


def test_examples_of_an_example_gen_are_not_left_out():
    with pytest.raises(ValidationError, match="require: does not go with example_gen; leave the examples out there"):
        Data(example_gen="digits_data.DigitsExampleGen", require=["digit"])
    with pytest.raises(ValidationError, match="require"):
        Data(csv="data", require=[""])

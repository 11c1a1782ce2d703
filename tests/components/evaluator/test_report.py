"""Tests the report that the Evaluator writes for pages of platforms."""

import json
from pathlib import Path

import tensorflow_model_analysis as tfma
import yaml
from kfp import dsl
from tfx import types
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.types import standard_artifacts

from tfx_distribute.components import Evaluator
from tfx_distribute.components.evaluator import report
from tfx_distribute.components.report import artifact_types, page
from tfx_distribute.components.tuner import trials
from tfx_distribute.pipelines.targets import pipeline_ir


def evaluator(**arguments: object) -> Evaluator:
    return Evaluator(
        examples=types.Channel(type=standard_artifacts.Examples),
        model=types.Channel(type=standard_artifacts.Model),
        eval_config=tfma.EvalConfig(),
        **arguments,  # type: ignore[arg-type]
    )


def artifact(kind: type[types.Artifact], folder: Path) -> list[types.Artifact]:
    folder.mkdir()
    made = kind()
    made.uri = str(folder)
    return [made]


def test_outputs_are_declared_with_a_report_only():
    statistics = types.Channel(type=standard_artifacts.ExampleStatistics)
    without = evaluator(statistics=statistics)
    assert (without.id, set(without.inputs), set(without.outputs)) == (
        "Evaluator",
        {"examples", "model"},
        {"evaluation", "blessing"},
    )
    component = evaluator(report="digits", statistics=statistics)
    assert set(component.inputs) == {"examples", "model", "statistics"}
    types_of = {name: channel.type.TYPE_NAME for name, channel in component.outputs.items()}
    assert types_of == {
        "evaluation": "ModelEvaluation",
        "blessing": "ModelBlessing",
        "html": "system.HTML",
        "metrics": "system.Metrics",
        "classification_metrics": "system.ClassificationMetrics",
    }


def test_types_are_those_of_kfp():
    """In the compiled pipeline, and where a step looks up the class."""
    artifact_types.register()
    kinds = {"html": artifact_types.HTML, "metrics": artifact_types.Metrics, "plot": artifact_types.ClassificationMetrics}
    declared = {
        name: {"artifactType": {"instanceSchema": compiler_utils.get_artifact_schema(kind)}} for name, kind in kinds.items()
    }
    schema = compiler_utils.get_artifact_schema(standard_artifacts.Model).decode()
    other = {"artifactType": {"instanceSchema": schema}}
    pipeline = {"components": {"Evaluator": {"outputDefinitions": {"artifacts": {**declared, "model": other}}}}}
    pipeline_ir.set_system_types(pipeline)
    outputs = pipeline["components"]["Evaluator"]["outputDefinitions"]["artifacts"]
    expected = {"html": dsl.HTML, "metrics": dsl.Metrics, "plot": dsl.ClassificationMetrics}
    for name, kind in expected.items():
        assert outputs[name]["artifactType"] == {"schemaTitle": kind.schema_title, "schemaVersion": kind.schema_version}
        assert compiler_utils.TITLE_TO_CLASS_PATH[kind.schema_title].endswith(kinds[name].__name__)
    assert outputs["model"]["artifactType"] == {"instanceSchema": schema}
    assert yaml.safe_load(schema)["title"] == "tfx.Model"


def test_page_at_the_address_of_its_artifact(tmp_path, monkeypatch):
    """It is a file, although TFX has made a folder there; missing parts are named."""
    inputs = {
        "examples": artifact(standard_artifacts.Examples, tmp_path / "examples"),
        "model": artifact(standard_artifacts.Model, tmp_path / "model"),
        "tuner_results": artifact(standard_artifacts.TunerResults, tmp_path / "trials"),
        "model_run": artifact(standard_artifacts.ModelRun, tmp_path / "run"),
    }
    inputs["examples"][0].set_string_custom_property("left_out", "1 of 2 without a value")
    inputs["model"][0].set_int_custom_property("train_steps", 460)
    # As Kubeflow's metadata of an input has it.
    inputs["model"][0].set_json_value_custom_property("num_replicas", 2.0)
    inputs["tuner_results"][0].set_string_custom_property("objective", "val_loss")
    inputs["tuner_results"][0].set_string_custom_property("goal", "min")
    trial = {"trial": "7", "status": "COMPLETED", "hparams": {"units": 16}, "score": 0.25}
    (tmp_path / "trials" / trials.TABLE_FILE).write_text(json.dumps(trial) + "\n")
    outputs = {
        "evaluation": artifact(standard_artifacts.ModelEvaluation, tmp_path / "evaluation"),
        "blessing": artifact(standard_artifacts.ModelBlessing, tmp_path / "blessing"),
        "html": artifact(artifact_types.HTML, tmp_path / "html"),
    }
    render = page.render
    monkeypatch.setattr(page, "render", lambda made: f"{render(made)}{made.data}")
    report.write("digits <1>", inputs, outputs)
    text = (tmp_path / "html").read_text()
    for shown in ("digits &lt;1&gt;", "val_loss (smallest)", "460", "Evaluation: ", "the training has left no history"):
        assert shown in text
    assert text.endswith("{'left out': '1 of 2 without a value'}")

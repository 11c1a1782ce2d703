"""Tests that the fake of Vertex AI Pipelines behaves as documented, without TFX."""

import json
from pathlib import Path
from typing import Any

import pytest
from vertex_pipelines import Run, TaskError, VertexPipelines

# Writes what it was told as the metadata of its model and of its blessing.
TRAIN = """
import json, os, sys
task, blessed = json.loads(sys.argv[1]), int(sys.argv[2])
outputs = task["outputs"]
attempts = os.path.join(os.path.dirname(outputs["outputFile"]).removeprefix("file://"), "attempts")
open(attempts, "a").write("x")
if len(open(attempts).read()) < int(sys.argv[3]):
    sys.exit(1)
artifacts = {key: listed["artifacts"][0] for key, listed in outputs["artifacts"].items()}
artifacts["blessing"]["metadata"] = {"blessed": blessed, "current_model_id": artifacts["model"]["name"]}
document = {"artifacts": {key: {"artifacts": [one]} for key, one in artifacts.items()}}
open(outputs["outputFile"].removeprefix("file://"), "w").write(json.dumps(document))
"""


def artifact(title: str) -> dict[str, Any]:
    return {"artifactType": {"instanceSchema": f"title: tfx.{title}\ntype: object\n"}}


def query(title: str, term: str = "") -> dict[str, str]:
    return {"filter": f'schema_title="tfx.{title}" AND state=LIVE{term}'}


def job(folder: Path, blessed: int, attempts_needed: int = 1) -> dict[str, Any]:
    """Returns a pipeline whose training starts from the latest blessed model."""
    arguments = ["-c", TRAIN, "{{$}}", str(blessed), str(attempts_needed)]
    named = " AND name=\"{{$.inputs.artifacts['input'].metadata['current_model_id']}}\""
    model_of_blessing = {"taskOutputArtifact": {"producerTask": "blessing-resolver", "outputArtifactKey": "blessing"}}
    model = {"taskOutputArtifact": {"producerTask": "model-resolver", "outputArtifactKey": "model"}}

    def task(name: str, **inputs: object) -> dict[str, Any]:
        return {
            "taskInfo": {"name": name},
            "componentRef": {"name": name},
            "inputs": {"artifacts": inputs},
            "retryPolicy": {"maxRetryCount": 1},
        }

    spec = {
        "pipelineInfo": {"name": "mine"},
        "schemaVersion": "2.0.0",
        "root": {
            "dag": {
                "tasks": {
                    "blessing-resolver": task("blessing-resolver"),
                    "model-resolver": task("model-resolver", input=model_of_blessing),
                    "train": task("train", base_model=model),
                }
            }
        },
        "components": {
            "blessing-resolver": {
                "executorLabel": "blessing-resolver",
                "outputDefinitions": {"artifacts": {"blessing": artifact("ModelBlessing")}},
            },
            "model-resolver": {
                "executorLabel": "model-resolver",
                "inputDefinitions": {"artifacts": {"input": artifact("ModelBlessing")}},
                "outputDefinitions": {"artifacts": {"model": artifact("Model")}},
            },
            "train": {
                "executorLabel": "train",
                "inputDefinitions": {"artifacts": {"base_model": artifact("Model")}},
                "outputDefinitions": {"artifacts": {"model": artifact("Model"), "blessing": artifact("ModelBlessing")}},
            },
        },
        "deploymentSpec": {
            "executors": {
                "blessing-resolver": {
                    "resolver": {
                        "outputArtifactQueries": {
                            "blessing": query("ModelBlessing", " AND metadata.blessed.number_value=1"),
                        }
                    }
                },
                "model-resolver": {"resolver": {"outputArtifactQueries": {"model": query("Model", named)}}},
                "train": {"container": {"image": "image", "command": ["python3"], "args": arguments}},
            }
        },
    }
    return {"pipelineSpec": spec, "runtimeConfig": {"gcsOutputDirectory": f"file://{folder}/bucket"}}


@pytest.fixture
def pipelines(tmp_path: Path) -> VertexPipelines:
    (tmp_path / "tasks").mkdir()
    return VertexPipelines(tmp_path / "tasks")


def base_model(run: Run) -> str:
    inputs = json.loads(json.dumps(run.inputs["train"]["inputs"]["artifacts"]))
    return str(inputs["base_model"]["artifacts"][0]["name"]) if inputs else ""


def test_resolvers_find_the_latest_blessed_model_of_all_runs(pipelines, tmp_path):
    first = pipelines.run(job(tmp_path, blessed=1), "one")
    second = pipelines.run(job(tmp_path, blessed=0), "two")
    third = pipelines.run(job(tmp_path, blessed=1), "three")
    assert base_model(first) == ""
    assert base_model(second) == base_model(third) == first.outputs["train"]["model"]["name"]
    assert base_model(pipelines.run(job(tmp_path, blessed=1), "four")) == third.outputs["train"]["model"]["name"]


def test_what_a_failed_task_left_is_not_found(pipelines, tmp_path):
    with pytest.raises(TaskError):
        pipelines.run(job(tmp_path, blessed=1, attempts_needed=3), "one")
    assert base_model(pipelines.run(job(tmp_path, blessed=1), "two")) == ""


def test_attempts_of_a_task_share_its_root_and_jobs_do_not(pipelines, tmp_path):
    runs = [pipelines.run(job(tmp_path, blessed=1, attempts_needed=2), name) for name in ("one", "two")]
    roots = [Path(run.outputs["train"]["model"]["uri"].removeprefix("file://")).parent for run in runs]
    assert [(root / "attempts").read_text() for root in roots] == ["xx", "xx"]
    assert [root.parent.name for root in roots] == ["one", "two"]

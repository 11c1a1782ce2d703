"""Runs `tfx-distribute` for the example on Vertex AI, and makes a small pipeline."""

from pathlib import Path
from typing import Any

import gcloud
import yaml
from click.testing import CliRunner, Result
from vertex_api import VertexApi

from tfx_distribute.pipelines.cli.main import main

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "vertex.yaml"
ACCOUNT = "trainer@example-project.iam.gserviceaccount.com"
IMAGE = "projects/example-project/locations/europe-west4/repositories/team/packages/digits"


def run_command(*words: object) -> Result:
    """Runs `tfx-distribute`."""
    return CliRunner().invoke(main, [str(word) for word in words])


def grant_roles(api: VertexApi, file: Path, *words: str) -> None:
    """Runs the commands that `tfx-distribute manifests` prints for a pipeline."""
    printed = run_command("manifests", file, "--target", "vertex", *words)
    assert printed.exit_code == 0, printed.output
    gcloud.run_script(printed.output, api.around)


def write_with(folder: Path, **settings: object) -> Path:
    """Writes the example's pipeline file with other settings of Vertex AI."""
    document = yaml.safe_load(DIGITS.read_text())
    document["module"] = str(DIGITS.parent / document["module"])
    document["targets"]["vertex"] |= settings
    file = folder / "vertex.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def pipeline_job(root: str) -> dict[str, Any]:
    """Returns a pipeline job of one task, with a parameter.

    Args:
      root: Folder of its runs.
    """
    container = {"image": "image", "command": ["true"]}
    return {
        "displayName": "mine",
        "pipelineSpec": {
            "pipelineInfo": {"name": "mine"},
            "schemaVersion": "2.0.0",
            "sdkVersion": "tfx-1.16.0",
            "root": {
                "inputDefinitions": {"parameters": {"epochs": {"type": "INT"}}},
                "dag": {"tasks": {"Trainer": {"taskInfo": {"name": "Trainer"}, "componentRef": {"name": "Trainer"}}}},
            },
            "components": {"Trainer": {"executorLabel": "Trainer_executor"}},
            "deploymentSpec": {"executors": {"Trainer_executor": {"container": container}}},
        },
        "labels": {"tfx_version": "1-16-0"},
        "runtimeConfig": {"gcsOutputDirectory": root, "parameters": {"epochs": {"intValue": 2}}},
    }

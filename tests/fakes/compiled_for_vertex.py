"""Copies examples with Vertex AI as a target, and compiles them."""

from pathlib import Path
from typing import Any

import example_project

from tfx_distribute.components.launchers import registry
from tfx_distribute.components.launchers.launcher import LauncherSettings
from tfx_distribute.pipelines.spec import loader, user_module
from tfx_distribute.pipelines.targets.target import Package
from tfx_distribute.pipelines.targets.vertex.target import VertexTarget

TARGET = {
    "image": "europe-west4-docker.pkg.dev/example-project/team/model:1",
    "pipeline_root": "gs://bucket/root",
    "project": "example-project",
    "region": "europe-west4",
    "labels": {"team": "a"},
}
RESOURCES = {
    "default": {"cpu": "500m", "memory": "2G"},
    "Transform": {"cpu": 4, "memory": "16G"},
    "Trainer": {"cpu": 4, "memory": "16G", "accelerator": "nvidia-tesla-t4", "accelerator_count": 2},
}


def project(folder: Path, example: str, **changes: object) -> Path:
    """Copies an example, with Vertex AI as a target; returns its pipeline file.

    Args:
      folder: Folder to copy it to.
      example: `digits` or `taxi`.
      **changes: Parts of the pipeline file that differ.
    """
    changes = {"resources": RESOURCES, "push": {"directory": "gs://bucket/serving"}} | changes
    return example_project.copy(folder, example, csv="gs://bucket/data", **({"targets": {"vertex": TARGET}} | changes))


def compiled(file: Path, *words: str) -> Package:
    """Compiles a pipeline file with parameters such as `num_workers=4`."""
    spec = loader.override(loader.load(file), loader.parse_parameters(words))
    return VertexTarget(spec).compile(user_module.find(spec))


def trainer_parameters(package: Package) -> dict[str, Any]:
    """Returns the parameters that the Trainer's task is given."""
    return package.pipeline["pipelineSpec"]["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]


def read_launcher(package: Package) -> LauncherSettings:
    """Returns the launcher that the Trainer's task is given."""
    return registry.from_json(trainer_parameters(package)["launcher"]["runtimeValue"]["constantValue"]["stringValue"])

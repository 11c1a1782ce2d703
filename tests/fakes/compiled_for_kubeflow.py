"""Copies examples with Kubeflow as a target, and compiles them."""

from pathlib import Path
from typing import Any

import example_project

from tfx_distribute.pipelines.spec import loader, user_module
from tfx_distribute.pipelines.targets.kubeflow.target import KubeflowTarget
from tfx_distribute.pipelines.targets.target import Package

TARGET = {
    "image": "registry.example.com/team/model:1",
    "pipeline_root": "s3://bucket/root",
    "platform": "gke",
    "training_dir": "/shared/training",
    "volumes": [{"claim": "shared", "mount_path": "/shared"}],
    "secrets": [{"name": "s3", "env": {"AWS_ACCESS_KEY_ID": "accesskey"}}],
    "labels": {"team": "a"},
    "queue": "team-a",
}
RESOURCES = {
    "default": {"cpu": "500m", "memory": "2Gi"},
    "CsvExampleGen": {"cpu": 2, "memory": "8Gi"},
    "Trainer": {"cpu": 8, "memory": "32Gi", "accelerator": "nvidia-l4", "accelerator_count": 2, "spot": True},
    "TrainerStep": {"memory": "2Gi"},
}


def project(folder: Path, example: str, **changes: object) -> Path:
    """Copies an example, with Kubeflow as a target; returns its pipeline file.

    Args:
      folder: Folder to copy it to.
      example: `digits` or `taxi`.
      **changes: Parts of the pipeline file that differ.
    """
    names = [name for name in RESOURCES if example == "taxi" or name != "CsvExampleGen"]
    changes = {"resources": {name: RESOURCES[name] for name in names}, "push": {"directory": "/shared/serving"}} | changes
    return example_project.copy(folder, example, csv="/shared/data", **({"targets": {"kubeflow": TARGET}} | changes))


def compiled(file: Path, *words: str) -> Package:
    """Compiles a pipeline file with parameters such as `num_workers=4`."""
    spec = loader.override(loader.load(file), loader.parse_parameters(words))
    return KubeflowTarget(spec).compile(user_module.find(spec))


def executors(pipeline: dict[str, Any]) -> dict[str, Any]:
    """Returns the executors of a compiled pipeline by their labels."""
    return pipeline["deploymentSpec"]["executors"]

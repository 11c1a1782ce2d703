"""Defines the section `targets` of pipeline files."""

from pydantic import Field

from tfx_distribute.components.spec_model import SpecModel
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings


class LocalSettings(SpecModel):
    """Settings of runs on this machine."""

    root: str | None = None
    """Folder for artifacts, metadata, logs and models. Default: `runs/<name>` in the
    working folder."""


class Targets(SpecModel):
    """Settings of each platform that a pipeline runs on."""

    local: LocalSettings = Field(LocalSettings())
    """This machine."""
    kubeflow: KubeflowSettings | None = None
    """Kubeflow Pipelines."""
    vertex: VertexSettings | None = None
    """Vertex AI."""

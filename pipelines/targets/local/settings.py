"""Defines the settings of runs on this machine: `targets.local` of a pipeline file."""

from pydantic import Field

from tfx_distribute.pipelines.spec.base import SpecModel


class LocalSettings(SpecModel):
    """Settings of runs on this machine."""

    root: str | None = None
    """Folder for artifacts, metadata, logs and models. Default: `runs/<name>` in the
    working folder."""
    base_port: int = Field(0, ge=0, le=65000)
    """First of the consecutive ports that training processes listen on; 0 for any free
    ports."""

"""Defines the settings of runs on this machine: `targets.local` of a pipeline file."""

from tfx_distribute.components.spec_model import SpecModel


class LocalSettings(SpecModel):
    """Settings of runs on this machine."""

    root: str | None = None
    """Folder for artifacts, metadata, logs and models. Default: `runs/<name>` in the
    working folder."""

"""Defines the settings that all targets have that pipelines are compiled for."""

from typing import Literal

from tfx_distribute.pipelines.spec.base import SpecModel
from tfx_distribute.pipelines.targets import texts


class RemoteSettings(SpecModel):
    """Base of the settings of targets that pipelines are compiled for."""

    image: texts.Image
    """Container image of all steps and training processes; it contains this package and
    the pipeline's module."""
    pipeline_root: str
    """Address that artifacts are written under."""
    log_format: Literal["text", "json"] = "text"
    """Format of what training processes on machines of their own log; `json` is one
    object per line, for log collectors."""

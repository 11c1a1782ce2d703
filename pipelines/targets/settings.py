"""Defines the settings that all targets have that pipelines are compiled for."""

from typing import ClassVar, Literal

from pydantic import Field

from tfx_distribute.components.spec_model import SpecModel

# Source: https://github.com/distribution/reference
_REGISTRY = r"(([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|localhost)(:[0-9]+)?|[A-Za-z0-9-]+:[0-9]+)/"
_REPOSITORY = r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_IMAGE = rf"^({_REGISTRY})?{_REPOSITORY}(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$"


class RemoteSettings(SpecModel):
    """Base of the settings of targets that pipelines are compiled for."""

    TARGET: ClassVar[str]

    image: str = Field(pattern=_IMAGE)
    """Container image of all steps and training processes; it contains this package and
    the pipeline's module."""
    pipeline_root: str
    """Address that artifacts are written under."""
    log_format: Literal["text", "json"] = "text"
    """Format of what training processes on machines of their own log; `json` is one
    object per line, for log collectors."""

    def checkpoint_dir(self, name: str) -> str | None:
        """Returns the folder of checkpoints of a pipeline; None for the Trainer's own.

        It does not depend on the run, so that a later run finds the checkpoints: its
        steps have other addresses.
        """
        root = self.pipeline_root.rstrip("/")
        return f"{root}/{name}/checkpoints" if root.startswith("gs://") else None

"""Where a training runs that needs other machines: the Trainer's execution property `launcher`, one JSON document."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field, TypeAdapter

from tfx_distribute.components.launchers.custom_job.spec import CustomJobSettings
from tfx_distribute.components.launchers.tfjob.manifest import TFJobSettings
from tfx_distribute.trainer_module.job.cluster import replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import Distribution

Settings = TFJobSettings | CustomJobSettings

_SETTINGS: TypeAdapter[Settings] = TypeAdapter(Annotated[Settings, Field(discriminator="kind")])


def to_json(settings: Settings) -> str:
    """The document."""
    return _SETTINGS.dump_json(settings).decode()


def from_json(text: str) -> Settings:
    """Reads the document.

    Raises:
      pydantic.ValidationError: It is not one.
    """
    return _SETTINGS.validate_json(text)


def runs_remotely(settings: Settings, distribution: Distribution) -> bool:
    """Whether a training is to run elsewhere, and not in the Trainer's own step."""
    if settings.training == "auto":
        return sum(replicas_of_roles(distribution).values()) > 1
    return settings.training != "step"


def force_remote(settings: Settings) -> Settings:
    """The same settings, for a step that never trains itself."""
    if isinstance(settings, TFJobSettings):
        return replace(settings, training="tfjob")
    return replace(settings, training="custom_job")

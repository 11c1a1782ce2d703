"""Reads and writes the Trainer's `launcher`: where training runs, as one JSON document.

It is an execution property of Trainers that may train on other machines.
"""

from dataclasses import replace
from typing import Annotated

from pydantic import Field, TypeAdapter

from tfx_distribute.components.launchers.custom_job.spec import CustomJobSettings
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.trainer_module.job.cluster import replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import Distribution

Settings = KubernetesSettings | CustomJobSettings

_SETTINGS: TypeAdapter[Settings] = TypeAdapter(Annotated[Settings, Field(discriminator="kind")])


def to_json(settings: Settings) -> str:
    """Writes settings as a JSON document."""
    return _SETTINGS.dump_json(settings).decode()


def from_json(text: str) -> Settings:
    """Reads settings from a JSON document.

    Raises:
      pydantic.ValidationError: The document does not describe settings.
    """
    return _SETTINGS.validate_json(text)


def runs_remotely(settings: Settings, distribution: Distribution) -> bool:
    """Returns True if training runs on other machines, not in the Trainer's step."""
    if settings.training == "auto":
        return sum(replicas_of_roles(distribution).values()) > 1
    return settings.training != "step"


def force_remote(settings: Settings) -> Settings:
    """Returns the same settings, but training never runs in the Trainer's own step."""
    if isinstance(settings, KubernetesSettings):
        return replace(settings, training="pods") if settings.training in ("auto", "step") else settings
    return replace(settings, training="custom_job")

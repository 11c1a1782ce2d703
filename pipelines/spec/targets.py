"""Composes the section `targets` of pipeline files from the settings of all targets."""

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, create_model

from tfx_distribute.components.spec_model import SpecModel
from tfx_distribute.pipelines import target_names

SettingsT = TypeVar("SettingsT", bound=SpecModel)


class _Targets(SpecModel):
    def find(self, settings: type[SettingsT]) -> SettingsT | None:
        """Returns the settings of one target, or None if the pipeline file has none.

        Args:
          settings: The class of the settings, such as `KubeflowSettings`.
        """
        values = (getattr(self, name) for name in type(self).model_fields)
        return next((value for value in values if isinstance(value, settings)), None)


def _field(target: type[Any]) -> tuple[Any, Any]:
    settings = target.settings_class()
    description = f"{target.title}."
    if any(field.is_required() for field in settings.model_fields.values()):
        return settings | None, Field(None, description=description)
    return settings, Field(settings(), description=description)


# For mypy, a class whose settings are read with `find`; it cannot follow the registry.
if TYPE_CHECKING:
    Targets = _Targets
else:
    Targets = create_model(
        "Targets",
        __base__=_Targets,
        __doc__="Settings of each platform that a pipeline runs on.",
        __module__=__name__,
        **{name: _field(target_names.get(name)) for name in target_names.names()},
    )

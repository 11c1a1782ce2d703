"""Derives the Trainer's arguments and execution properties from declared parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfx.types import component_spec

from tfx_distribute.trainer_module.job.declaration import Declaration, declarations


def execution_parameters(groups: Sequence[type]) -> dict[str, component_spec.ExecutionParameter]:
    """Returns an optional execution property for each parameter that `groups` declare.

    TFX's execution properties and RuntimeParameters have no bool, so a flag is an int,
    0 or 1.
    """
    return {
        declared.name: component_spec.ExecutionParameter(type=_property_type(declared), optional=True)
        for declared in declarations(*groups)
    }


def execution_values(groups: Sequence[type], arguments: Mapping[str, Any], component: str = "Trainer") -> dict[str, Any]:
    """Returns the values of execution properties for pipeline parameters.

    An argument is a value, a RuntimeParameter or None. Raises a TypeError, which names
    the component's class, if no group declares a parameter of that name.
    """
    names = {declared.name for declared in declarations(*groups)}
    for name in arguments:
        if name not in names:
            raise TypeError(f"{component}.__init__() got an unexpected keyword argument {name!r}")
    return {name: int(value) if isinstance(value, bool) else value for name, value in arguments.items()}


def _property_type(declared: Declaration) -> type:
    return int if declared.type is bool else declared.type

"""Derives the Trainer's arguments and execution properties from declared parameters."""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tfx.orchestration import data_types
from tfx.types import component_spec

from tfx_distribute.trainer_module.job.declaration import Declaration, declarations

_Function = TypeVar("_Function", bound=Callable[..., None])

_WIDTH = 88  # columns of the docstring


def execution_parameters(groups: Sequence[type]) -> dict[str, component_spec.ExecutionParameter]:
    """Returns an optional execution property for each parameter that `groups` declare.

    TFX's execution properties and RuntimeParameters have no bool, so a flag is an int,
    0 or 1.
    """
    return {
        declared.name: component_spec.ExecutionParameter(type=_property_type(declared), optional=True)
        for declared in declarations(*groups)
    }


def annotations(groups: Sequence[type]) -> dict[str, Any]:
    """Returns the type of the argument for each parameter that `groups` declare.

    It is the parameter's own type, a RuntimeParameter, or None for the default.
    """
    return {declared.name: declared.type | data_types.RuntimeParameter | None for declared in declarations(*groups)}


def execution_values(groups: Sequence[type], arguments: Mapping[str, Any], component: str = "Trainer") -> dict[str, Any]:
    """Returns the values of execution properties for pipeline parameters.

    Args:
      groups: Dataclasses of parameters.
      arguments: Name of a parameter -> its value, a RuntimeParameter or None.
      component: Name of the component's class, for the message.

    Raises:
      TypeError: A name is not a parameter's.
    """
    names = {declared.name for declared in declarations(*groups)}
    for name in arguments:
        if name not in names:
            raise TypeError(f"{component}.__init__() got an unexpected keyword argument {name!r}")
    return {name: int(value) if isinstance(value, bool) else value for name, value in arguments.items()}


def documents_parameters(groups: Sequence[type]) -> Callable[[_Function], _Function]:
    """Returns a decorator that spells out `**parameters` of an `__init__`.

    `help()` and `inspect.signature` then show each parameter that `groups` declare in
    place of `**parameters`: with type and default in the signature, with help and
    default in the section `Args:` of the docstring. Calls work as before.

    ```python
    class Trainer:
        @documents_parameters(GROUPS)
        def __init__(self, label, **parameters):
            ...
    ```
    """

    def decorate(function: _Function) -> _Function:
        function.__signature__ = _signature(function, groups)  # type: ignore[attr-defined]
        if function.__doc__:  # None under `python -OO`
            function.__doc__ = _docstring(function.__doc__, groups)
        return function

    return decorate


def _signature(function: Callable[..., None], groups: Sequence[type]) -> inspect.Signature:
    *arguments, last = inspect.signature(function).parameters.values()
    if last.kind is not inspect.Parameter.VAR_KEYWORD:
        raise TypeError(f"{function.__qualname__} has no **parameters")
    types = annotations(groups)
    declared = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in declarations(*groups)
    ]
    return inspect.Signature([*arguments, *declared], return_annotation=inspect.signature(function).return_annotation)


def _docstring(text: str, groups: Sequence[type]) -> str:
    """Replaces the entry `**parameters:` and its indented lines."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.lstrip().startswith("**parameters:"))
    indent = lines[start][: -len(lines[start].lstrip())]
    end = start + 1
    while end < len(lines) and lines[end].startswith(f"{indent} "):
        end += 1
    entries = [line for declared in declarations(*groups) for line in _entry(declared, indent)]
    return "\n".join([*lines[:start], *entries, *lines[end:]])


def _entry(declared: Declaration, indent: str) -> list[str]:
    default = repr(declared.default)
    choices = f" One of {', '.join(f'`{choice}`' for choice in declared.choices)}." if declared.choices else ""
    flag = " As a RuntimeParameter, 0 or 1." if declared.type is bool else ""
    text = f"{declared.name}: {declared.help}{choices}{flag} Default: {default}."
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _property_type(declared: Declaration) -> type:
    return int if declared.type is bool else declared.type

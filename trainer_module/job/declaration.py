"""Declares pipeline parameters as dataclass fields, and reads the declarations back.

A parameter is declared once, in `parameters.py`. Everything else that knows the
parameters is derived from `declarations(...)`: the model of the pipeline file, the
Trainer's arguments and execution properties, and the reference documentation. This
module is plain Python, since every training process imports it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from tfx_distribute.trainer_module.errors import ConfigurationError

_Value = TypeVar("_Value", bool, int, str)


@dataclass(frozen=True)
class Declaration:
    """A pipeline parameter, as its dataclass field declares it.

    Attributes:
      type: `bool`, `int` or `str`.
      help: One paragraph of Markdown for all documentation: what the parameter does,
        its unit, what 0 or an empty text means, and which strategies it goes with.
      minimum: Smallest allowed number; None for no limit.
      choices: All allowed values; empty if the type and the limit decide.
    """

    name: str
    type: type
    default: Any
    help: str
    minimum: int | None
    choices: tuple[str | int, ...]

    def check(self, value: Any) -> None:
        """Raises ConfigurationError if a value breaks the limit or the choices."""
        if self.minimum is not None and value < self.minimum:
            raise ConfigurationError(f"{self.name}: {value} is too small; write {self.minimum} or more")
        if self.choices and value not in self.choices:
            choices = ", ".join(map(str, self.choices))
            raise ConfigurationError(f"{self.name}: {value!r} is not known; choose one of {choices}")


def parameter(
    default: _Value,
    help: str,
    *,
    minimum: int | None = None,
    choices: Sequence[str | int] = (),
) -> _Value:
    """Returns a dataclass field that declares a pipeline parameter; see `Declaration`.

    ```python
    @dataclass(frozen=True)
    class TrainingOptions:
        epochs: int = parameter(0, "Number of times that ...", minimum=0)
    ```
    """
    declared = {"help": help, "minimum": minimum, "choices": tuple(choices)}
    return field(default=default, metadata=declared)


def declarations(*groups: type) -> tuple[Declaration, ...]:
    """Returns the parameters that dataclasses declare, in order."""
    return tuple(
        Declaration(each.name, cast(type, each.type), each.default, **each.metadata)
        for group in groups
        for each in fields(group)
    )


def check_values(group: Any) -> None:
    """Checks the values of a dataclass of parameters against their declarations."""
    for declared in declarations(type(group)):
        declared.check(getattr(group, declared.name))

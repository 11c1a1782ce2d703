"""Declares pipeline parameters as dataclass fields, and reads the declarations back.

A parameter is declared once, in `parameters.py`. Everything else that knows the
parameters is derived from `declarations(...)`: the model of the pipeline file, the
Trainer's arguments and execution properties, and the reference documentation. This
module is plain Python, since every training process imports it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from tfx_distribute.trainer_module.errors import ConfigurationError

_METADATA_KEY = "tfx_distribute.parameter"

Number = int | float
Choices = Sequence[str | int]

_Value = TypeVar("_Value", bool, int, float, str)


@dataclass(frozen=True)
class Declaration:
    """A pipeline parameter, as its dataclass field declares it.

    Attributes:
      type: `bool`, `int`, `float` or `str`.
      help: One paragraph of Markdown for all documentation: what the parameter does,
        its unit, what 0 or an empty text means, and which strategies it goes with.
      minimum: Smallest allowed number; None for no limit.
      maximum: Largest allowed number; None for no limit.
      below: Number that a value has to be smaller than; None for no limit.
      choices: All allowed values; empty if the type and the limits decide.
    """

    name: str
    type: type
    default: Any
    help: str
    minimum: Number | None
    maximum: Number | None
    below: Number | None
    choices: tuple[str | int, ...]

    def check(self, value: Any) -> None:
        """Raises ConfigurationError if a value breaks the limits or the choices."""
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigurationError(f"{self.name}: {value} is not a finite number; write one")
        if self.minimum is not None and value < self.minimum:
            raise ConfigurationError(f"{self.name}: {value} is too small; write {self.minimum} or more")
        if self.maximum is not None and value > self.maximum:
            raise ConfigurationError(f"{self.name}: {value} is too large; write {self.maximum} or less")
        if self.below is not None and value >= self.below:
            raise ConfigurationError(f"{self.name}: {value} is too large; write less than {self.below}")
        if self.choices and value not in self.choices:
            choices = ", ".join(map(str, self.choices))
            raise ConfigurationError(f"{self.name}: {value!r} is not known; choose one of {choices}")


def parameter(
    default: _Value,
    help: str,
    *,
    minimum: Number | None = None,
    maximum: Number | None = None,
    below: Number | None = None,
    choices: Choices = (),
) -> _Value:
    """Returns a dataclass field that declares a pipeline parameter.

    ```python
    @dataclass(frozen=True)
    class TrainingOptions:
        epochs: int = parameter(0, "Number of times that ...", minimum=0)
    ```

    `Declaration` describes the arguments.
    """
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "below": below, "choices": choices}
    return field(default=default, metadata={_METADATA_KEY: metadata})


def declarations(*groups: type) -> tuple[Declaration, ...]:
    """Returns the parameters that dataclasses declare, in order.

    Each field of a dataclass has to be a `parameter(...)`.
    """
    declared = []
    for group in groups:
        for each in fields(group):
            metadata = dict(each.metadata[_METADATA_KEY])
            values = tuple(metadata.pop("choices"))
            declared.append(
                Declaration(name=each.name, type=each.type, default=each.default, choices=values, **metadata)  # type: ignore[arg-type]
            )
    return tuple(declared)


def check_values(group: Any) -> None:
    """Checks the values of a dataclass of parameters against their declarations.

    Raises ConfigurationError if one is not allowed; its message begins with the
    parameter's name.
    """
    for declared in declarations(type(group)):
        declared.check(getattr(group, declared.name))

"""Describes the values that a search may give one hyperparameter.

Imports neither TFX nor TensorFlow.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

from pydantic import Field

from tfx_distribute.components.spec_model import ScalarValue, SpecModel

Value = bool | int | float | str


class ValueRange(SpecModel):
    """Values that the search may give a hyperparameter.

    Write `values`, or `min` and `max`. Their type is that of the default in
    `trainer.hparams`.
    """

    values: list[ScalarValue] = Field(default_factory=list, strict=False)  # a tuple becomes a list
    """The values."""
    min: int | float | None = None
    """Smallest value."""
    max: int | float | None = None
    """Largest value."""
    step: int | float | None = None
    """Distance between two values; with the sampling `log`, the factor between them.
    Default: any value of a range, and for whole numbers 1."""
    sampling: Literal["linear", "log", "reverse_log"] = "linear"
    """`log` tries each order of magnitude as often as any other, `reverse_log` more
    values close to `max`."""


def count(values: ValueRange, kind: type) -> float:
    """Returns how many values there are; infinite for numbers without steps."""
    if values.values or values.min is None or values.max is None:
        return len(values.values)
    if values.step is None:
        return values.max - values.min + 1 if kind is int else math.inf
    if values.sampling == "linear":
        steps = (values.max - values.min) / values.step
    else:
        steps = math.log(values.max / values.min, values.step)
    return math.floor(steps + 1e-8) + 1  # 0.2 / 0.1 may be less than 2


def list_steps(values: ValueRange) -> list[float]:
    """Returns the numbers of a range with steps, from `min` to at most `max`.

    They are those that the decimals in a pipeline file add up to: 0.3, and not
    0.30000000000000004, comes after 0.2 with step 0.1.
    """
    smallest, largest, step = (Decimal(str(number)) for number in (values.min, values.max, values.step))
    if values.sampling == "linear":
        numbers = [smallest + index * step for index in range(int(count(values, float)))]
    else:
        numbers = [smallest * step**index for index in range(int(count(values, float)))]
    if values.sampling == "reverse_log":
        numbers = [largest + smallest - number for number in numbers]
    return [float(min(number, largest)) for number in numbers]


def find_problem(values: ValueRange, default: Value) -> str:
    """Returns what is wrong with a hyperparameter's values; empty if nothing is."""
    bounds = {name: getattr(values, name) for name in ("min", "max", "step") if getattr(values, name) is not None}
    kind = type(default)
    if kind not in _NAMES:
        return f"its default in trainer.hparams, {default!r}, is not text, a number, or true or false; write such a default"
    infinite = [
        value for value in (*values.values, *bounds.values()) if isinstance(value, float) and not math.isfinite(value)
    ]
    if infinite:
        return f"{infinite[0]} is not allowed; write finite numbers"
    if values.values and (bounds or values.sampling != "linear"):
        return "has values and a range; write either values, or min and max"
    if values.values:
        wrong = [value for value in values.values if not _fits(value, kind)]
        if wrong:
            return f"{wrong[0]!r} is not {_NAMES[kind]}, as its default in trainer.hparams, {default!r}, is"
        if len(set(values.values)) < len(values.values):
            return "has a value twice; write each once"
        return ""
    if kind not in (int, float):
        return f"its default in trainer.hparams, {default!r}, is not a number; write values: [...]"
    if values.min is None or values.max is None:
        return "write values, or min and max"
    wrong = [f"{name}: {value!r}" for name, value in bounds.items() if not _fits(value, kind)]
    if wrong:
        return f"{wrong[0]} is not {_NAMES[kind]}, as its default in trainer.hparams, {default!r}, is"
    if values.min >= values.max:
        return f"min is {values.min}, and max is {values.max}; write a larger max"
    if values.sampling != "linear" and values.min <= 0:
        return f"min is {values.min}, and sampling {values.sampling} needs more than 0; write a larger min"
    smallest = 1 if values.sampling != "linear" else 0
    if values.step is not None and values.step <= smallest:
        return f"step is {values.step}; write more than {smallest} with sampling {values.sampling}"
    if values.step is not None and count(values, kind) < 2:
        return f"step is {values.step}, which leaves only {values.min}; write a smaller step"
    return ""


_NAMES: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _fits(value: Value, kind: type) -> bool:
    """Returns True if a value has a type; a whole number is a number too."""
    return type(value) is kind or (kind is float and type(value) is int)

"""Reads the values to compare from the arguments of `-p`."""

import math
from collections.abc import Iterable, Mapping

from tfx_distribute.components.spec_model import Scalar
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.spec.files import shorten
from tfx_distribute.trainer_module.errors import ConfigurationError

MAX_COMBINATIONS = 64
# Commas are part of these values. Several of them are written as several `-p`.
NOT_SPLIT = frozenset(
    {
        "base_model",
        "class_weight",
        "layout_rules",
        "tpu",
    }
)

Grid = Mapping[str, tuple[Scalar, ...]]


def parse(arguments: Iterable[str]) -> Grid:
    """Reads `name=value,value` arguments. A name that is repeated gets more values.

    A comma in a parameter of `NOT_SPLIT` is part of its value.
    """
    grid: dict[str, tuple[Scalar, ...]] = {}
    for argument in arguments:
        name, _, text = argument.partition("=")
        texts = [argument]  # one value, or no `=`, which is refused as it is written
        if "," in text and name not in NOT_SPLIT:
            texts = [f"{name}={value.strip()}" for value in text.split(",")]
        if len(texts) > 1 and f"{name}=" in texts:
            raise ConfigurationError(f"-p {shorten(argument)}: has an empty value; write -p {shorten(name)}=value,value")
        for one in texts:
            grid[name] = grid.get(name, ()) + tuple(loader.parse_parameters([one]).values())
    count = math.prod(map(len, grid.values()))
    if count > MAX_COMBINATIONS:
        raise ConfigurationError(f"-p: these are {count:,} combinations; write at most {MAX_COMBINATIONS}")
    return grid


def format_value(value: Scalar) -> str:
    """Formats a value as it is written in a pipeline file."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe(values: Mapping[str, Scalar]) -> str:
    """Formats values on one line, such as `strategy=mirrored num_workers=1`."""
    return " ".join(f"{name}={format_value(value)}" for name, value in values.items())

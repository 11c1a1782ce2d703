"""Reads the pipeline parameter `class_weight`. Imports no TensorFlow."""

import math
import re

from tfx_distribute.trainer_module.errors import ConfigurationError

# A weight for each class up to the largest one listed is kept in memory.
_MAX_CLASS = 1_000_000


def parse(text: str) -> dict[int, float]:
    """Returns the weight of each class that a text such as `0: 1, 1: 2.5` lists."""
    weights: dict[int, float] = {}
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    for item in inner.split(",") if inner else ():
        match = re.fullmatch(r"\s*(\d+)\s*:\s*([^\s:]+)\s*", item)
        weight = _as_number(match[2]) if match else None
        if match is None or weight is None:
            raise ConfigurationError(
                f"class_weight: {item.strip()!r} is not a class and its weight; write them like 0: 1, 1: 2.5 (classes from "
                "0, weights of 0 or more)"
            )
        number = int(match[1])
        if number > _MAX_CLASS:
            raise ConfigurationError(f"class_weight: {number} is too large for a class; write {_MAX_CLASS} or less")
        if number in weights:
            raise ConfigurationError(f"class_weight: class {number} is listed twice; write it once")
        weights[number] = weight
    return weights


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None

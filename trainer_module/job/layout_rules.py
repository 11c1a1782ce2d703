"""Parses the mesh and the layout rules of `model_parallel`, and applies the rules.

    mesh: 2x4
    layout_rules: "hidden.*kernel = unsharded, model; hidden.*bias = model"

The first dimension of the mesh, `batch`, divides the examples; the second, `model`,
divides variables. A rule has a regular expression for names of variables and, for each
dimension of such a variable, the dimension of the mesh that divides it, or `unsharded`.
The first rule that matches a variable counts. A variable that no rule matches is whole
on every device.
"""

import re
from collections.abc import Sequence

from tfx_distribute.trainer_module.errors import ConfigurationError

BATCH, MODEL = "batch", "model"
UNSHARDED = "unsharded"  # as in tf.experimental.dtensor.UNSHARDED

Rules = tuple[tuple[str, tuple[str, ...]], ...]


def parse_mesh(text: str) -> tuple[int, int]:
    """Parses a mesh such as `2x4` into its numbers of devices."""
    match = re.fullmatch(r"\s*([1-9]\d*)\s*x\s*([1-9]\d*)\s*", text)
    if not match:
        raise ConfigurationError(
            f"mesh: {text!r} is not a valid mesh; write devices along the batch x along the model, such as 2x4"
        )
    return int(match[1]), int(match[2])


def parse_rules(text: str) -> Rules:
    """Parses layout rules such as `kernel = unsharded, model; bias = model`.

    Returns patterns for names of variables, each with the mesh dimension that divides
    each dimension of the variable.
    """
    return tuple(_parse_rule(rule.strip()) for rule in text.split(";") if rule.strip())


def dimensions_of(rules: Rules, mesh: tuple[int, int], name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Returns the mesh dimension or `unsharded` for each dimension of a variable."""
    pattern, dimensions = next((rule for rule in rules if re.search(rule[0], name)), ("", (UNSHARDED,) * len(shape)))
    if len(shape) != len(dimensions):
        raise ConfigurationError(
            f"layout_rules: {pattern!r} has {len(dimensions)} dimensions, but {name} has {len(shape)}: {list(shape)}"
        )
    sizes = {BATCH: mesh[0], MODEL: mesh[1], UNSHARDED: 1}
    for size, dimension in zip(shape, dimensions, strict=True):
        if size % sizes[dimension]:
            raise ConfigurationError(
                f"layout_rules: {name} {list(shape)} cannot be divided along {dimension!r}: {size} is not a multiple of "
                f"{sizes[dimension]} devices; write {UNSHARDED} there, or another mesh"
            )
    return dimensions


def check_rules(rules: Rules, names: Sequence[str]) -> None:
    """Checks that every rule is the first match of at least one variable of a model."""
    used = {next((pattern for pattern, _ in rules if re.search(pattern, name)), "") for name in names}
    for pattern, _ in rules:
        if pattern not in used:
            raise ConfigurationError(
                f"layout_rules: {pattern!r} matches no variable, or only ones that an earlier rule matches; the model has "
                f"{', '.join(names)}"
            )


def _parse_rule(rule: str) -> tuple[str, tuple[str, ...]]:
    pattern, _, dimensions = (part.strip() for part in rule.rpartition("="))
    if not pattern or not dimensions:
        raise ConfigurationError(
            f"layout_rules: {rule!r} is not a valid rule; write PATTERN = DIMENSION, ..., such as kernel = unsharded, model"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"layout_rules: {pattern!r} is not a valid regular expression: {error}") from error
    names = tuple(name.strip() for name in dimensions.split(","))
    unknown = [name for name in names if name not in (BATCH, MODEL, UNSHARDED)]
    if unknown:
        raise ConfigurationError(
            f"layout_rules: the mesh has no dimension {unknown[0]!r}; choose one of {BATCH}, {MODEL}, {UNSHARDED}"
        )
    return pattern, names

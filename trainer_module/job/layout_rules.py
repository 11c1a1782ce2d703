"""How `model_parallel` is written: a mesh, and rules that say which variables are divided along it.

    mesh: 2x4
    layout_rules: "hidden.*kernel = unsharded, model; hidden.*bias = model"

The first dimension of the mesh, `batch`, divides the examples; the second, `model`, divides variables. A rule is a regular
expression for names of variables and, for each dimension of such a variable, the dimension of the mesh that it is divided
along, or `unsharded`. The first rule that matches a variable counts; one that no rule matches is whole on every device.
Importing this imports no TensorFlow.
"""

import re
from collections.abc import Sequence

from tfx_distribute.trainer_module.errors import ConfigurationError

BATCH, MODEL = "batch", "model"
UNSHARDED = "unsharded"  # as in tf.experimental.dtensor.UNSHARDED

Rules = tuple[tuple[str, tuple[str, ...]], ...]


def parse_mesh(text: str) -> tuple[int, int]:
    """Number of devices along the batch and along the model.

    Raises:
      ConfigurationError: It is not `BATCHxMODEL`.
    """
    found = re.fullmatch(r"\s*([1-9]\d*)\s*x\s*([1-9]\d*)\s*", text)
    if not found:
        raise ConfigurationError(f"mesh: {text!r} is no mesh; write devices along the batch x along the model, such as 2x4")
    return int(found[1]), int(found[2])


def parse_rules(text: str) -> Rules:
    """Patterns of names of variables, each with the dimension of the mesh for each dimension of the variable.

    Raises:
      ConfigurationError: It is not `PATTERN = DIM, DIM; PATTERN = DIM`.
    """
    rules = []
    for rule in filter(str.strip, text.split(";")):
        pattern, found, dimensions = rule.rpartition("=")
        names = tuple(name.strip() for name in dimensions.split(","))
        if not found or not pattern.strip():
            raise ConfigurationError(
                f"layout_rules: {rule.strip()!r} is no rule; write PATTERN = DIMENSION, ..., such as "
                "kernel = unsharded, model"
            )
        wrong = [name for name in names if name not in (BATCH, MODEL, UNSHARDED)]
        if wrong:
            raise ConfigurationError(
                f"layout_rules: the mesh has no dimension {wrong[0]!r}; choose one of {BATCH}, {MODEL}, {UNSHARDED}"
            )
        try:
            re.compile(pattern.strip())
        except re.error as error:
            raise ConfigurationError(
                f"layout_rules: {pattern.strip()!r} is no regular expression ({error}); mend it"
            ) from error
        rules.append((pattern.strip(), names))
    return tuple(rules)


def dimensions_of(rules: Rules, mesh: tuple[int, int], name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """How a variable is divided.

    Args:
      rules: The rules.
      mesh: Number of devices along the batch and along the model.
      name: Name of the variable.
      shape: Its shape.

    Returns:
      For each of its dimensions, the dimension of the mesh that it is divided along.

    Raises:
      ConfigurationError: It cannot be divided as the first rule that matches it says.
    """
    pattern, dimensions = next((rule for rule in rules if re.search(rule[0], name)), ("", (UNSHARDED,) * len(shape)))
    if len(shape) != len(dimensions):
        raise ConfigurationError(
            f"layout_rules: {pattern!r} has {len(dimensions)} dimensions, but {name} has {len(shape)}: {list(shape)}"
        )
    sizes = {BATCH: mesh[0], MODEL: mesh[1], UNSHARDED: 1}
    for size, dimension in zip(shape, dimensions, strict=True):
        if size % sizes[dimension]:
            raise ConfigurationError(
                f"layout_rules: {name} {list(shape)} cannot be divided along {dimension!r}: {size} is no multiple of "
                f"{sizes[dimension]} devices; write {UNSHARDED} there, or another mesh"
            )
    return dimensions


def check_rules(rules: Rules, names: Sequence[str]) -> None:
    """Compares rules with the variables of a model.

    Raises:
      ConfigurationError: A rule is the first to match none of the variables `names`.
    """
    used = {next((pattern for pattern, _ in rules if re.search(pattern, name)), "") for name in names}
    for pattern, _ in rules:
        if pattern not in used:
            raise ConfigurationError(
                f"layout_rules: {pattern!r} matches no variable, or only such as an earlier rule matches; the model has "
                f"{', '.join(names)}"
            )

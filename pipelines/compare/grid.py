"""Reads the values to compare from the arguments of `-p`: plain text, no TensorFlow."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping

from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.spec.base import Scalar
from tfx_distribute.pipelines.spec.files import shorten
from tfx_distribute.trainer_module.errors import ConfigurationError

MAX_COMBINATIONS = 64
# Commas are part of these values. Several of them are written as several `-p`.
NOT_SPLIT = frozenset(
    {
        "base_model",
        "base_model_mapping",
        "base_model_vocabularies",
        "class_weight",
        "devices",
        "freeze",
        "layout_rules",
        "tpu",
    }
)
# Parameters that a comparison sets itself, and what to write or know instead.
_LENGTH = "write --train-steps instead"
_NO_EVALUATION = "a comparison does not evaluate; leave it out"
_NOT_SAVED = "a comparison does not save the training state; leave it out"
FIXED = {
    "train_steps": _LENGTH,
    "epochs": _LENGTH,
    "steps_per_epoch": _LENGTH,
    "validation_freq": _NO_EVALUATION,
    "eval_steps": _NO_EVALUATION,
    "num_evaluators": _NO_EVALUATION,
    "export_best": "a comparison exports no model; leave it out",
    "export_mode": "a comparison exports no model; leave it out",
    "keep_checkpoints": _NOT_SAVED,
    "save_checkpoints_secs": _NOT_SAVED,
    "save_checkpoints_steps": _NOT_SAVED,
    "async_checkpointing": _NOT_SAVED,
    "max_restarts": "a training that loses a process counts as failed; leave it out",
    "profile_steps": "a profile slows the training that is measured; leave it out",
}
# A value in quotes, or up to the next comma or quote.
_PIECE = re.compile(r"""'[^']*'|"[^"]*"|[^,'"]+|['"]|,""")
_MAX_LENGTH = 100_000  # of an argument

Grid = Mapping[str, tuple[Scalar, ...]]


def parse(arguments: Iterable[str]) -> dict[str, tuple[Scalar, ...]]:
    """Reads `name=value,value` arguments. A name that is repeated gets more values.

    ```python
    parse(["strategy=one_device,mirrored", "learning_rate=0.1"])
    # {"strategy": ("one_device", "mirrored"), "learning_rate": (0.1,)}
    ```

    A comma in quotes is part of a value, as is any comma in a parameter of `NOT_SPLIT`.

    Args:
      arguments: The arguments.

    Returns:
      Name -> its values, each once, in the order in which they are written.

    Raises:
      ConfigurationError: An argument does not have that form, has an empty value, or
        names a parameter that a comparison sets itself; or there are more than
        `MAX_COMBINATIONS` combinations.
    """
    grid: dict[str, dict[tuple[type, Scalar], None]] = {}
    for argument in arguments:
        if len(argument) > _MAX_LENGTH:
            raise ConfigurationError(f"-p {shorten(argument)}: has {len(argument):,} characters; write fewer values")
        name, _, text = argument.partition("=")
        if name in FIXED:
            raise ConfigurationError(f"-p {shorten(argument)}: {FIXED[name]}")
        texts = [text] if name in NOT_SPLIT else _split(text)
        if len(texts) > 1 and not all(map(str.strip, texts)):
            raise ConfigurationError(f"-p {shorten(argument)}: has an empty value; write -p {shorten(name)}=value,value")
        if re.fullmatch(r"\s*\[.*\]\s*", text):
            raise ConfigurationError(f"-p {shorten(argument)}: write the values without brackets, as -p name=value,value")
        for one in texts:
            # Without a `=`, the argument is refused as it is.
            single = argument if len(texts) == 1 else f"{name}={one.strip()}"
            (value,) = loader.parse_parameters([single]).values()
            grid.setdefault(name, {})[type(value), value] = None
    values = {name: tuple(value for _, value in keys) for name, keys in grid.items()}
    count = math.prod(map(len, values.values()))
    if count > MAX_COMBINATIONS:
        raise ConfigurationError(f"-p: these are {count:,} combinations; at most {MAX_COMBINATIONS} are compared at once")
    return values


def _split(text: str) -> list[str]:
    """Splits a text at commas outside of quotes."""
    texts = [""]
    for piece in _PIECE.findall(text):
        if piece == ",":
            texts.append("")
        else:
            texts[-1] += piece
    return texts


def expand(grid: Grid) -> list[dict[str, Scalar]]:
    """Returns all combinations; the value of the last name changes fastest.

    ```python
    expand({"a": (1, 2), "b": (3,)})  # [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    ```
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def format_value(value: Scalar) -> str:
    """Formats a value as it is written in a pipeline file."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe(values: Mapping[str, Scalar]) -> str:
    """Formats values on one line, such as `strategy=mirrored num_workers=1`."""
    return " ".join(f"{name}={format_value(value)}" for name, value in values.items())

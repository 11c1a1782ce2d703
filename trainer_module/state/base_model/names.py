"""Names the weights of models, as different kinds of files name them."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import tensorflow as tf

# Names of random generators' states, which belong to no layer that learns.
_RANDOM_STATES = ("seed_generator_state", "StateVar")
_NAMELESS_WEIGHT = "variable"  # Keras 3 calls weights without names so, and counts them
# Attributes of layers with a lookup table that are variables. The layer computes them
# from data or from `build_model`, together with the table.
TABLE_VARIABLES = ("idf_weights", "num_documents")


@dataclass(frozen=True)
class Names:
    """The names of one weight; None where the source of the weight has no such name.

    The order is that of their reliability.

    Attributes:
      path: Path of the weight, such as `encoder/dense/kernel`.
      layer: The outermost layer and the path, as `encoder:dense/kernel`, from an HDF5
        file of a whole model.
      variable: Name of the TensorFlow variable.
      named_key: Key in a Keras file, with the names of layers:
        `encoder/dense/vars/0`.
      file_key: Key in a Keras file, with the classes of layers:
        `layers/functional/layers/dense/vars/0`.
    """

    path: str
    layer: str | None = None
    variable: str | None = None
    named_key: str | None = None
    file_key: str | None = None

    def map(self, function: Callable[[str], str]) -> "Names":
        """Returns the names with a function applied to each."""
        changed = {kind: function(name) for kind in KINDS if (name := getattr(self, kind)) is not None}
        return replace(self, **changed)


KINDS = tuple(field.name for field in fields(Names))


def weights_of(model: Any) -> list[Any]:
    """Returns a model's weights without vocabularies, which Keras 2 lists there too."""
    return [weight for weight in model.weights if not hasattr(weight, "get_tensors")]


def has_table(layer: Any) -> bool:
    """Returns True for a layer that looks entries up in a vocabulary."""
    layers = tf.keras.layers
    return isinstance(layer, layers.StringLookup | layers.IntegerLookup | layers.TextVectorization)


def is_adapted(layer: Any) -> bool:
    """Returns True for a layer whose state stays that of `build_model`."""
    return has_table(layer) or isinstance(layer, tf.keras.layers.Discretization)


def path_of(variable: Any) -> str:
    """Returns the path of a Keras variable."""
    return str(getattr(variable, "path", None) or variable_name(variable))


def variable_name(variable: Any) -> str:
    """Returns the name of the TensorFlow variable behind a Keras variable."""
    inner: Any = getattr(variable, "_value", None)  # Keras 3
    named = inner if isinstance(getattr(inner, "name", None), str) else variable
    return str(named.name).partition(":")[0]


def split_part(path: str) -> tuple[str, int]:
    """Splits the path of a part of a weight into that of the weight, and a number.

    TensorFlow divides weights among parameter servers, along their first dimension, and
    names the parts.
    """
    match = re.fullmatch(r"(.*)/part_(\d+)", path)
    if match and isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy):
        return match[1], int(match[2])
    return path, 0


def is_random_state(name: str) -> bool:
    """Returns True for the state of a random generator."""
    return name.rpartition("/")[2] in _RANDOM_STATES


def to_snake_case(class_name: str) -> str:
    """Returns a class's name as Keras writes it in names and files.

    ```python
    to_snake_case("LayerNormalization")  # "layer_normalization"
    ```
    """
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", class_name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def renumber(paths: Iterable[str], bases: set[str], root: str) -> dict[str, str]:
    """Renumbers automatic names of layers from 0, in the order of their numbers.

    Keras counts the layers of a class over the whole process, so that the same model
    has other names if it is not the first one.

    ```python
    renumber(["dense_3/kernel", "dense_5/kernel"], {"dense"}, "model")
    # {"dense_3/kernel": "dense/kernel", "dense_5/kernel": "dense_1/kernel"}
    ```

    Args:
      paths: Paths of all weights.
      bases: Names that Keras would give the layers of the model, without numbers.
      root: Name of the model. Keras writes it before all paths, or before none.

    Returns:
      Path -> renumbered path.
    """
    split = {path: path.split("/") for path in paths}
    firsts = {_base(parts[0]) for parts in split.values() if len(parts) > 2}
    if firsts == {_base(root)} and all(len(parts) > 2 for parts in split.values()):
        split = {path: parts[1:] for path, parts in split.items()}
    numbers: dict[tuple[str, ...], set[int]] = {}
    for parts in split.values():
        for depth in _numbered_depths(parts, bases):
            numbers.setdefault((*parts[:depth], _base(parts[depth])), set()).add(_number(parts[depth]))
    renumbered = {}
    for path, parts in split.items():
        new = list(parts)
        for depth in _numbered_depths(parts, bases):
            base = _base(parts[depth])
            group = (*parts[:depth], base)
            rank = sorted(numbers[group]).index(_number(parts[depth]))
            new[depth] = f"{base}_{rank}" if rank else base
        renumbered[path] = "/".join(new)
    return renumbered


def automatic_bases(layers: Iterable[Any]) -> set[str]:
    """Returns the names that Keras would give layers, without numbers.

    Args:
      layers: The layers, those in others too.
    """
    bases = {to_snake_case(type(layer).__name__) for layer in layers}
    # A Bidirectional layer has a copy of its layer for each direction.
    return bases | {f"{direction}_{base}" for direction in ("forward", "backward") for base in bases}


def _numbered_depths(parts: list[str], bases: set[str]) -> list[int]:
    """Returns the indices of the parts of a path that have automatic names."""
    depths = [depth for depth, part in enumerate(parts[:-1]) if _base(part) in bases]
    return [*depths, len(parts) - 1] if _base(parts[-1]) == _NAMELESS_WEIGHT else depths


def _base(name: str) -> str:
    return re.sub(r"_\d+$", "", name)


def _number(name: str) -> int:
    match = re.search(r"_(\d+)$", name)
    return int(match[1]) if match else 0

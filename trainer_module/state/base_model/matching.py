"""Pairs the weights of a base model with those of the model. Pure functions."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tfx_distribute.trainer_module.state.base_model.model_weights import ModelWeight

_MAX_LISTED = 30
_NAMELESS_WEIGHT = "variable"  # Keras 3 calls weights without names so, and counts them


@dataclass(frozen=True)
class BaseWeight:
    """One weight of a base model: its name, shape, and a function that reads it."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Matches:
    """Weights in pairs, which may differ in shape, and those of one model only."""

    pairs: list[tuple[ModelWeight, BaseWeight]]
    only_model: list[ModelWeight]
    only_base: list[BaseWeight]


def match(base: Sequence[BaseWeight], weights: Sequence[ModelWeight], names: Sequence[str], automatic: set[str]) -> Matches:
    """Pairs weights by their names.

    Automatic names, such as `dense_3`, may count from other numbers: they are also
    paired in the order of these, which counts if more weights correspond then. `names`
    are those of the model's weights, as the base model has names; `automatic` are those
    that Keras would give the model's layers, without numbers.
    """
    base_names = [weight.name for weight in base]
    exact = _pair(base_names, names, str)
    by_order = _pair(base_names, names, lambda name: strip_number(name, automatic))

    def count_equal(pairs: dict[int, int]) -> int:
        return sum(weights[index].shape == base[other].shape for index, other in pairs.items())

    pairs = max(exact, by_order, key=count_equal)  # the first, if both are as good
    taken = set(pairs.values())
    return Matches(
        [(weights[index], base[other]) for index, other in sorted(pairs.items())],
        [weight for index, weight in enumerate(weights) if index not in pairs],
        [weight for index, weight in enumerate(base) if index not in taken],
    )


def describe_differences(matches: Matches) -> list[str]:
    """Returns a line for each difference, with the shapes."""
    lines = [
        f"{weight.path}: {list(other.shape)} in the base model, {list(weight.shape)} in the model"
        for weight, other in matches.pairs
        if weight.shape != other.shape
    ]
    lines += [f"{weight.path}: {list(weight.shape)} in the model only" for weight in matches.only_model]
    lines += [f"{weight.name}: {list(weight.shape)} in the base model only" for weight in matches.only_base]
    shown = lines[:_MAX_LISTED]
    return [*shown, f"and {len(lines) - len(shown)} more"] if len(lines) > len(shown) else lines


def strip_number(path: str, automatic: set[str]) -> str:
    """Removes the numbers of automatic names of layers, such as `dense_3/kernel`.

    Keras counts the layers of a class over the whole process, so that the same model
    has other names if it is not the first one.
    """
    *layers, weight = path.split("/")
    stripped = [name if (name := re.sub(r"_\d+$", "", layer)) in automatic else layer for layer in layers]
    return "/".join([*stripped, re.sub(rf"^{_NAMELESS_WEIGHT}_\d+$", _NAMELESS_WEIGHT, weight)])


def _pair(base_names: Sequence[str], names: Sequence[str], key: Callable[[str], str]) -> dict[int, int]:
    """Returns index -> index in the base model of weights with the same key.

    Several of the same key are paired in the order of the numbers in their names, if
    both models have as many.
    """
    by_name: dict[str, tuple[list[int], list[int]]] = {}
    for side, listed in enumerate((names, base_names)):
        for index, name in sorted(enumerate(listed), key=lambda each: _numbers(each[1])):
            by_name.setdefault(key(name), ([], []))[side].append(index)
    equal = [indices for indices in by_name.values() if len(indices[0]) == len(indices[1])]
    return {index: other for indices, others in equal for index, other in zip(indices, others, strict=True)}


def _numbers(path: str) -> list[int]:
    """Returns the number at the end of each part of a path, 0 for none."""
    return [int(number[1]) if (number := re.search(r"_(\d+)$", part)) else 0 for part in path.split("/")]

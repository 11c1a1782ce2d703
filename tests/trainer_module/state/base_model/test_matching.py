import numpy as np
import pytest

from tfx_distribute.trainer_module.state.base_model import matching
from tfx_distribute.trainer_module.state.base_model.matching import BaseWeight
from tfx_distribute.trainer_module.state.base_model.model_weights import ModelWeight


def pairs(base: list[str], model: list[str], automatic: set[str]) -> dict[str, int]:
    """Returns path in the model -> position in the base model, of weights in pairs."""
    sources = [BaseWeight(name, (number % 3,), lambda: np.zeros(1)) for number, name in enumerate(base)]
    weights = [ModelWeight(name, name, (number % 3,), []) for number, name in enumerate(model)]
    found = matching.match(sources, weights, model, automatic)
    assert len(found.pairs) + len(found.only_model) == len(model)
    assert len(found.pairs) + len(found.only_base) == len(base)
    return {weight.path: sources.index(source) for weight, source in found.pairs}


def test_automatic_names_are_counted_from_zero():
    paths = ["dense_3/kernel", "dense_5/kernel", "own_4/variable_8", "own_4/variable_9", "own_6/variable_10", "head_2/bias"]
    assert matching.renumber(paths, {"dense", "own"}) == [
        *("dense/kernel", "dense_1/kernel", "own/variable", "own/variable_1", "own_1/variable", "head_2/bias")
    ]


@pytest.mark.parametrize(
    ("base", "model", "expected"),
    [
        (["a/kernel", "b/kernel"], ["b/kernel", "a/kernel"], {"b/kernel": 1, "a/kernel": 0}),
        (["dense_3/bias", "dense_12/bias"], ["dense/bias", "dense_1/bias"], {"dense/bias": 0, "dense_1/bias": 1}),
        (["dense_1/bias", "dense_2/bias"], ["dense_1/bias", "dense_2/bias"], {"dense_1/bias": 0, "dense_2/bias": 1}),
        (["block_3/bias"], ["block_1/bias"], {}),  # its own name, which says which one it is
        (["a/bias", "a/bias"], ["a/bias"], {}),  # which of them is not known
    ],
)
def test_weights_correspond_by_path(base, model, expected):
    assert pairs(base, model, {"dense"}) == expected


def test_weights_of_the_same_name_keep_their_order():
    sources = [BaseWeight("a/bias", (number,), lambda: np.zeros(1)) for number in (1, 2)]
    weights = [ModelWeight("a/bias", "a/bias", (number,), []) for number in (1, 2)]
    found = matching.match(sources, weights, ["a/bias", "a/bias"], set())
    assert found.pairs == list(zip(weights, sources, strict=True))

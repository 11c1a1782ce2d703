import numpy as np
import pytest

from tfx_distribute.trainer_module.state.base_model import matching
from tfx_distribute.trainer_module.state.base_model.matching import BaseWeight
from tfx_distribute.trainer_module.state.base_model.model_weights import ModelWeight


def pairs(base: list[str], model: list[str], automatic: set[str]) -> dict[str, int]:
    """Returns path in the model -> position in the base model, of weights in pairs."""
    sources = [BaseWeight(name, (1,), lambda: np.zeros(1)) for name in base]
    weights = [ModelWeight(name, name, (1,), []) for name in model]
    found = matching.match(sources, weights, model, automatic)
    assert len(found.pairs) + len(found.only_model) == len(model)
    assert len(found.pairs) + len(found.only_base) == len(base)
    return {weight.path: sources.index(source) for weight, source in found.pairs}


def test_automatic_names_lose_their_numbers():
    paths = ["dense_3/kernel", "own_4/variable_8", "own_6/block_2/variable", "head_2/bias_1"]
    assert [matching.strip_number(path, {"dense", "own"}) for path in paths] == [
        *("dense/kernel", "own/variable", "own/block_2/variable", "head_2/bias_1")
    ]


@pytest.mark.parametrize(
    ("base", "model", "expected"),
    [
        (["a/kernel", "b/kernel"], ["b/kernel", "a/kernel"], {"b/kernel": 1, "a/kernel": 0}),
        (["dense_3/bias", "dense_12/bias"], ["dense/bias", "dense_1/bias"], {"dense/bias": 0, "dense_1/bias": 1}),
        (["dense_1/bias", "dense_2/bias"], ["dense_1/bias", "dense_2/bias"], {"dense_1/bias": 0, "dense_2/bias": 1}),
        # Numbers decide, not the order: Keras 2 lists weights of frozen layers last.
        (["dense_5/bias", "dense_4/bias"], ["dense/bias", "dense_1/bias"], {"dense/bias": 1, "dense_1/bias": 0}),
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

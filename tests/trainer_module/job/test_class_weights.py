import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import class_weights


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("", {}),
        (" ", {}),
        ("{}", {}),
        ("0: 1, 1: 2.5", {0: 1.0, 1: 2.5}),
        ("{3:0,0:1e-2}", {3: 0.0, 0: 0.01}),
    ],
)
def test_classes_and_weights(text, weights):
    assert class_weights.parse(text) == weights


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1", "'1' is not a class and its weight; write them like 0: 1, 1: 2.5"),
        ("0: 1,", "'' is not a class"),
        ("spam: 2", "'spam: 2' is not a class"),
        ("-1: 2", "'-1: 2' is not a class"),
        ("0: -1", "'0: -1' is not a class"),
        ("0: nan", "'0: nan' is not a class"),
        ("0: 1: 2", "'0: 1: 2' is not a class"),
        ("0: 1, 0: 2", "class 0 is listed twice"),
        ("10000000: 1", "10000000 is too large for a class"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(ConfigurationError, match=f"^class_weight: {message}"):
        class_weights.parse(text)

import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import labels


@pytest.mark.parametrize(
    ("features", "names"),
    [
        (None, ()),
        ("digit", ("digit",)),
        ({"a": "digit", "b": "is_even"}, ("digit", "is_even")),
        ({"a": "x", "b": "x"}, ("x", "x")),
    ],
)
def test_names_survive_as_text(features, names):
    assert labels.names_in(features) == names
    assert labels.from_text(labels.to_text(features)) == features


@pytest.mark.parametrize(
    ("label", "example_weight", "class_weight"),
    [
        ("digit", None, ""),
        ("digit", "weight", "1: 2"),
        (None, None, ""),
        ({"a": "digit"}, "weight", "1: 2"),
        ({"a": "digit"}, "weight", ""),
        ({"a": "digit", "b": "is_even"}, "weight", ""),
        ({"a": "digit", "b": "is_even"}, {"b": "weight", "a": "weight"}, ""),
    ],
)
def test_labels_that_go_with_weights(label, example_weight, class_weight):
    labels.check(label, example_weight, class_weight)


@pytest.mark.parametrize(
    ("label", "example_weight", "class_weight", "message"),
    [
        ({}, None, "", "^label: it names no output; write"),
        (None, "weight", "", "^example_weight: there is no label"),
        (None, None, "1: 2", "^class_weight: there is no label"),
        ({"a": "digit", "b": "is_even"}, None, "1: 2", "^class_weight: label names several outputs"),
        ("digit", {"a": "weight"}, "", "^example_weight: it is for the outputs a, and label is for none; write"),
        (
            {"a": "x", "b": "y"},
            {"a": "weight"},
            "",
            "^example_weight: it is for the outputs a, and label is for a, b; write",
        ),
    ],
)
def test_weights_without_a_loss(label, example_weight, class_weight, message):
    with pytest.raises(ConfigurationError, match=message):
        labels.check(label, example_weight, class_weight)


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        (" ", {}),
        ("{}", {}),
        ("0: 1, 1: 2.5", {0: 1.0, 1: 2.5}),
        ("{3:0,0:1e-2}", {3: 0.0, 0: 0.01}),
    ],
)
def test_classes_and_weights(text, weights):
    assert labels.parse_class_weight(text) == weights


@pytest.mark.parametrize(
    "text", ["1", "spam: 2", "-1: 2", "1.5: 2", "0: -1", "0: nan", "0: 1: 2", "0: 1, 0: 2", "0: 1e999", "0: 'a'"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigurationError, match="^class_weight: .* is not a list of classes .* like 0: 1, 1: 2.5"):
        labels.parse_class_weight(text)

import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layout_rules

SHAPES = [("hidden/kernel", (64, 128)), ("hidden/bias", (128,)), ("out/kernel", (128, 10)), ("out/bias", (10,))]


def test_mesh():
    assert layout_rules.parse_mesh("2x4") == (2, 4)
    assert layout_rules.parse_mesh(" 1 x 8 ") == (1, 8)


@pytest.mark.parametrize("text", ["2", "0x2", "x2", "2x2x2", "2*4"])
def test_what_is_no_mesh(text):
    with pytest.raises(
        ConfigurationError, match="^mesh: .* is not a valid mesh; write devices along the batch x along the model"
    ):
        layout_rules.parse_mesh(text)


def test_rules():
    assert layout_rules.parse_rules("") == ()
    assert layout_rules.parse_rules("hidden/kernel = unsharded, model; (?=x)bias=model;") == (
        ("hidden/kernel", ("unsharded", "model")),
        ("(?=x)bias", ("model",)),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel", "'kernel' is not a valid rule; write PATTERN = DIMENSION"),
        ("= model", "'= model' is not a valid rule"),
        ("kernel = modle", "the mesh has no dimension 'modle'; choose one of batch, model, unsharded"),
        ("( = model", "'\\(' is not a valid regular expression"),
    ],
)
def test_what_is_no_rule(text, message):
    with pytest.raises(ConfigurationError, match=f"^layout_rules: {message}"):
        layout_rules.parse_rules(text)


def test_how_each_variable_is_divided():
    rules = layout_rules.parse_rules("hidden/kernel = unsharded, model; hidden/bias = model; kernel = model, unsharded")
    layout_rules.check_rules(rules, [name for name, _ in SHAPES])
    divided = {name: layout_rules.dimensions_of(rules, (2, 4), name, shape) for name, shape in SHAPES}
    assert divided == {
        "hidden/kernel": ("unsharded", "model"),
        "hidden/bias": ("model",),
        "out/kernel": ("model", "unsharded"),
        "out/bias": ("unsharded",),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("embedding = model", "'embedding' matches no variable.*; the model has hidden/kernel, hidden/bias, out/kernel"),
        (
            "kernel = model, unsharded; out/kernel = unsharded, unsharded",
            "'out/kernel' matches no variable, or only ones that",
        ),
    ],
)
def test_rule_that_divides_nothing(text, message):
    with pytest.raises(ConfigurationError, match=f"^layout_rules: {message}"):
        layout_rules.check_rules(layout_rules.parse_rules(text), [name for name, _ in SHAPES])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden/kernel = model", "'hidden/kernel' has 1 dimensions, but hidden/kernel has 2: \\[64, 128\\]"),
        (
            "out/kernel = unsharded, model",
            "out/kernel \\[128, 10\\] cannot be divided along 'model': 10 is not a multiple of 4 devices; write unsharded",
        ),
    ],
)
def test_variable_that_cannot_be_divided_so(text, message):
    rules = layout_rules.parse_rules(text)
    name, shape = next(found for found in SHAPES if found[0] == rules[0][0])
    with pytest.raises(ConfigurationError, match=f"^layout_rules: {message}"):
        layout_rules.dimensions_of(rules, (2, 4), name, shape)

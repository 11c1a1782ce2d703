import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layout_rules
from tfx_distribute.trainer_module.job.layout_rules import parse_mesh, parse_rules

SHAPES = [("hidden/kernel", (64, 128)), ("hidden/bias", (128,)), ("out/kernel", (128, 10)), ("out/bias", (10,))]


def test_mesh():
    assert parse_mesh("2x4") == (2, 4)
    assert parse_mesh(" 1 x 8 ") == (1, 8)


def test_rules():
    assert parse_rules("") == ()
    assert parse_rules("hidden/kernel = unsharded, model; (?=x)bias=model;") == (
        ("hidden/kernel", ("unsharded", "model")),
        ("(?=x)bias", ("model",)),
    )


def test_how_each_variable_is_divided():
    rules = parse_rules("hidden/kernel = unsharded, model; hidden/bias = model; kernel = model, unsharded")
    layout_rules.check_rules(rules, [name for name, _ in SHAPES])
    divided = {name: layout_rules.dimensions_of(rules, (2, 4), name, shape) for name, shape in SHAPES}
    assert divided == {
        "hidden/kernel": ("unsharded", "model"),
        "hidden/bias": ("model",),
        "out/kernel": ("model", "unsharded"),
        "out/bias": ("unsharded",),
    }


def check_rules(text):
    layout_rules.check_rules(parse_rules(text), [name for name, _ in SHAPES])


def divide(text):
    rules = parse_rules(text)
    name, shape = next(found for found in SHAPES if found[0] == rules[0][0])
    layout_rules.dimensions_of(rules, (2, 4), name, shape)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        *((parse_mesh, text, "mesh: .* is not a valid mesh; write devices") for text in ("2", "0x2", "x2", "2x2x2", "2*4")),
        (parse_rules, "kernel", "layout_rules: 'kernel' is not a valid rule; write PATTERN = DIMENSION"),
        (parse_rules, "= model", "layout_rules: '= model' is not a valid rule"),
        (
            parse_rules,
            "kernel = modle",
            "layout_rules: the mesh has no dimension 'modle'; choose one of batch, model, uns",
        ),
        (parse_rules, "( = model", r"layout_rules: '\(' is not a valid regular expression"),
        (check_rules, "embedding = model", "layout_rules: 'embedding' matches no variable.*; the model has hidden/kernel, "),
        (
            check_rules,
            "kernel = model, model; out/kernel = model, model",
            "layout_rules: 'out/kernel' matches no variable, or",
        ),
        (
            divide,
            "hidden/kernel = model",
            r"layout_rules: 'hidden/kernel' has 1 dimensions, but hidden/kernel has 2",
        ),
        (
            divide,
            "out/kernel = unsharded, model",
            r"layout_rules: out/kernel .* along 'model': 10 is not a multiple",
        ),
    ],
)
def test_mistakes(read, text, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        read(text)

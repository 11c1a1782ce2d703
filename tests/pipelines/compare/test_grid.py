import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfx_distribute.pipelines.compare import grid
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.declaration import declarations
from tfx_distribute.trainer_module.job.parameters import GROUPS


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["num_workers=1,2,4"], {"num_workers": (1, 2, 4)}),
        (["num_workers= 1, 2 "], {"num_workers": (1, 2)}),
        (["num_workers=1", "num_workers=2,1"], {"num_workers": (1, 2)}),
        (["flag=true,1,1.0"], {"flag": (True, 1, 1.0)}),
        (["text='a,b',\"c,d\",e"], {"text": ("a,b", "c,d", "e")}),
        (["devices=GPU:0,GPU:1", "devices=GPU:0"], {"devices": ("GPU:0,GPU:1", "GPU:0")}),
        (["layout_rules=kernel = unsharded, model"], {"layout_rules": ("kernel = unsharded, model",)}),
        (["freeze="], {"freeze": ("",)}),
        (["text=a=b,c"], {"text": ("a=b", "c")}),
    ],
)
def test_values(arguments, expected):
    parsed = grid.parse(arguments)
    assert parsed == expected
    assert [list(map(type, values)) for values in parsed.values()] == [
        list(map(type, values)) for values in expected.values()
    ]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("num_workers", "-p num_workers: write -p name=value"),
        ("=1,2", "-p =1: write -p name=value"),
        ("num_workers=1,,2", "has an empty value; write -p num_workers=value,value"),
        ("num_workers=1,", "has an empty value"),
        ("num_workers=[1, 2]", "write the values without brackets"),
        ("rate=null,1", "-p rate=null"),
        ("epochs=1,2", "-p epochs=1,2: write --train-steps instead"),
        ("num_evaluators=1", "a comparison does not evaluate"),
        ("seed=" + ",".join(map(str, range(65))), "65 combinations; at most 64"),
        ("x=" + "1," * 20_000, "has an empty value"),
        ("x=" + "'" + "1," * 20_000, "has an empty value"),
        ("x=" + "1," * 100_000, "has 200,002 characters"),
    ],
)
def test_mistakes(argument, message):
    with pytest.raises(ConfigurationError) as error:
        grid.parse([argument])
    assert message in str(error.value)
    assert len(str(error.value)) < 300


@settings(max_examples=100, database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(max_size=30), max_size=4))
def test_any_text_is_read_or_refused(arguments):
    try:
        values = grid.parse(arguments)
    except ConfigurationError:
        return
    assert len(grid.expand(values)) <= grid.MAX_COMBINATIONS


def test_combinations_in_order():
    assert grid.expand({"a": (1, 2), "b": ("x", "y")}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    assert grid.expand({}) == [{}]


def test_values_on_one_line():
    assert grid.describe({"jit_compile": True, "rate": 0.001, "strategy": "mirrored"}) == (
        "jit_compile=true rate=0.001 strategy=mirrored"
    )


def test_all_parameters_of_free_text_are_known():
    """A comma in a new parameter of this kind must not divide it."""
    texts = {each.name for each in declarations(*GROUPS) if each.type is str and not each.choices}
    assert texts <= grid.NOT_SPLIT | grid.FIXED.keys() | {"mesh"}
    assert grid.NOT_SPLIT - {"base_model"} <= texts
    assert grid.FIXED.keys() <= {each.name for each in declarations(*GROUPS)}

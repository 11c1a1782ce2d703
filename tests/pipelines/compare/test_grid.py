import pytest

from tfx_distribute.pipelines.compare import grid
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.parameters import GROUPS, declarations


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["num_workers= 1, 2 ", "num_workers=4"], {"num_workers": (1, 2, 4)}),
        (["flag=true,1,1.0"], {"flag": (True, 1, 1.0)}),
        (["mesh=1x2,2x1", "mesh="], {"mesh": ("1x2", "2x1", "")}),
        (["layout_rules="], {"layout_rules": ("",)}),
        (["text=a=b,c"], {"text": ("a=b", "c")}),
    ],
)
def test_values(arguments, expected):
    assert repr(grid.parse(arguments)) == repr(expected)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("num_workers", "-p num_workers: write -p name=value"),
        ("=1,2", "-p =1: write -p name=value"),
        ("num_workers=1,", "has an empty value; write -p num_workers=value,value"),
        ("rate=null,1", "-p rate=null"),
        ("seed=" + ",".join(map(str, range(65))), "65 combinations; write at most 64"),
        ("x=" + "1," * 100_000, "has an empty value"),
    ],
)
def test_mistakes(argument, message):
    with pytest.raises(ConfigurationError) as error:
        grid.parse([argument])
    assert message in str(error.value)
    assert len(str(error.value)) < 300


def test_values_on_one_line():
    assert grid.describe({"jit_compile": True, "rate": 0.001, "strategy": "mirrored"}) == (
        "jit_compile=true rate=0.001 strategy=mirrored"
    )


def test_all_parameters_of_free_text_are_known():
    """A comma in a new parameter of this kind must not divide it."""
    texts = {each.name for each in declarations(*GROUPS) if each.type is str and not each.choices}
    assert texts <= grid.NOT_SPLIT | {"mesh", "export_best", "profile_steps"}
    assert grid.NOT_SPLIT - {"base_model"} <= texts

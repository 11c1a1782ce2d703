from dataclasses import dataclass, field

import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.declaration import check_values, declarations, parameter
from tfx_distribute.trainer_module.job.parameters import GROUPS, Distribution


@dataclass(frozen=True)
class Options:
    rate: float = parameter(0.5, "A rate.", minimum=0, maximum=1)
    seed: int = parameter(0, "A seed.", below=8)
    color: str = parameter("red", "A color.", choices=("red", "green"))
    size: int = parameter(2, "A size.", choices=(2, 3))
    flag: bool = parameter(False, "A flag.")


def test_field_is_an_ordinary_one():
    assert Options() == Options(0.5, 0, "red", 2, False)
    assert Options.rate == 0.5


def test_declaration_is_read_back():
    rate, seed, color, size, flag = declarations(Options)
    assert (rate.name, rate.type, rate.default, rate.help) == ("rate", float, 0.5, "A rate.")
    assert (rate.minimum, rate.maximum, rate.below, rate.choices) == (0, 1, None, ())
    assert seed.below == 8
    assert color.choices == ("red", "green")
    assert size.choices == (2, 3)
    assert flag.type is bool


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": -1.0}, "rate: -1.0 is too small; write 0 or more"),
        ({"rate": 1.5}, "rate: 1.5 is too large; write 1 or less"),
        ({"seed": 8}, "seed: 8 is too large; write less than 8"),
        ({"color": "blue"}, "color: 'blue' is not known; choose one of red, green"),
        ({"size": 4}, "size: 4 is not known; choose one of 2, 3"),
    ],
)
def test_value_that_is_not_allowed_is_refused(values, message):
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        check_values(Options(**values))


def test_allowed_values_pass():
    check_values(Options(rate=1.0, seed=7, color="green", size=3, flag=True))


def test_field_that_is_not_a_parameter_is_noticed():
    @dataclass
    class Other:
        name: str = field(default="")

    with pytest.raises(KeyError):
        declarations(Other)


def test_each_name_is_declared_once_and_each_default_is_allowed():
    names = [declared.name for declared in declarations(*GROUPS)]
    assert len(set(names)) == len(names) > 30
    for declared in declarations(*GROUPS):
        declared.check(declared.default)
        assert isinstance(declared.default, declared.type)
        assert declared.help.endswith("."), declared.name


@pytest.mark.parametrize("name", ["keras_version", "precision", "gradient_accumulation_steps", "jit_compile"])
def test_help_names_the_strategies_that_a_parameter_does_not_go_with(name):
    from tfx_distribute.trainer_module.job.strategy_table import STRATEGIES

    (declared,) = (declared for declared in declarations(*GROUPS) if declared.name == name)
    named = {strategy for strategy in STRATEGIES if f"`{strategy}`" in declared.help}
    assert named == {row.name for row in STRATEGIES.values() if name in row.refuses}


def test_choices_of_strategy_are_those_of_the_table():
    from tfx_distribute.trainer_module.job import strategy_info, strategy_table

    assert declarations(Distribution)[0].choices == strategy_info.NAMES
    all_reduce = next(declared for declared in declarations(Distribution) if declared.name == "all_reduce")
    assert {name for row in strategy_table.STRATEGIES.values() for name in row.all_reduce} | {"auto"} == set(
        all_reduce.choices
    )

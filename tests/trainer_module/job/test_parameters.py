from dataclasses import dataclass

import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_info
from tfx_distribute.trainer_module.job.parameters import (
    GROUPS,
    Declaration,
    Distribution,
    check_values,
    declarations,
    parameter,
)
from tfx_distribute.trainer_module.job.strategy_info import STRATEGIES


@dataclass(frozen=True)
class Options:
    steps: int = parameter(1, "Steps.", minimum=0)
    color: str = parameter("red", "A color.", choices=("red", "green"))
    size: int = parameter(2, "A size.", choices=(2, 3))
    flag: bool = parameter(False, "A flag.")


def test_declaration_is_that_of_an_ordinary_field():
    assert Options() == Options(1, "red", 2, False)
    steps, color, *_ = declarations(Options)
    assert steps == Declaration("steps", int, 1, "Steps.", 0, ())
    assert color.choices == ("red", "green")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": -1}, "steps: -1 is too small; write 0 or more"),
        ({"color": "blue"}, "color: 'blue' is not known; choose one of red, green"),
        ({"size": 4}, "size: 4 is not known; choose one of 2, 3"),
    ],
)
def test_value_that_is_not_allowed_is_refused(values, message):
    check_values(Options(steps=7, color="green", size=3, flag=True))
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        check_values(Options(**values))


def test_each_name_is_declared_once_and_each_default_is_allowed():
    names = [declared.name for declared in declarations(*GROUPS)]
    assert len(set(names)) == len(names) > 30
    for declared in declarations(*GROUPS):
        declared.check(declared.default)
        assert isinstance(declared.default, declared.type)
        assert declared.help.endswith("."), declared.name


@pytest.mark.parametrize("name", ["keras_version", "precision", "gradient_accumulation_steps", "jit_compile"])
def test_help_names_the_strategies_that_a_parameter_does_not_go_with(name):
    (declared,) = (declared for declared in declarations(*GROUPS) if declared.name == name)
    named = {strategy for strategy in STRATEGIES if f"`{strategy}`" in declared.help}
    assert named == {row.name for row in STRATEGIES.values() if name in row.refuses}


def test_choices_of_strategy_are_those_of_the_table():
    assert declarations(Distribution)[0].choices == strategy_info.NAMES
    all_reduce = next(declared for declared in declarations(Distribution) if declared.name == "all_reduce")
    assert {name for row in STRATEGIES.values() for name in row.all_reduce} | {"auto"} == set(all_reduce.choices)

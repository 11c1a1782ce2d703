import builtins
import sys

import pytest

from tfx_distribute.trainer_module.user_code import user_exit


@pytest.mark.parametrize(
    ("leave", "call"),
    [
        (lambda: sys.exit(0), "sys.exit(0)"),
        (lambda: sys.exit(), "sys.exit()"),
        (lambda: sys.exit("no data"), "sys.exit('no data')"),
    ],
)
def test_call_and_place_are_named(leave, call):
    with pytest.raises(SystemExit) as raised:
        leave()
    assert user_exit.describe(raised.value) == f"{call} was called in {__file__}, line {leave.__code__.co_firstlineno}"


def test_exit_of_the_interactive_prompt_counts_as_the_users():
    with pytest.raises(SystemExit) as raised:
        builtins.exit(3)
    assert user_exit.describe(raised.value).startswith(f"sys.exit(3) was called in {__file__}, line ")

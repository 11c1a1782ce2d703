import builtins
import os
import sys

import pytest

from tfx_distribute.trainer_module.user_code import user_exit


@pytest.mark.parametrize(
    ("leave", "call"),
    [
        (lambda: sys.exit(0), "sys.exit(0)"),
        (lambda: sys.exit(), "sys.exit()"),
        (lambda: sys.exit("no data"), "sys.exit('no data')"),
        (lambda: os._exit(0), "os._exit(0)"),
    ],
)
def test_call_and_place_are_named(leave, call):
    with user_exit.os_exit_raises(), pytest.raises(SystemExit) as raised:
        leave()
    assert user_exit.describe(raised.value) == f"{call} was called in {__file__}, line {leave.__code__.co_firstlineno}"


def test_exit_of_the_interactive_prompt_counts_as_the_users():
    with pytest.raises(SystemExit) as raised:
        builtins.exit(3)
    assert user_exit.describe(raised.value).startswith(f"sys.exit(3) was called in {__file__}, line ")


def test_forks_end_as_they_like():
    with user_exit.os_exit_raises():
        child = os.fork()
        if child == 0:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

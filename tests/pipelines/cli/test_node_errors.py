import sys
from pathlib import Path

from tfx_distribute.pipelines.cli.node_errors import explain
from tfx_distribute.trainer_module.errors import ConfigurationError

HERE = Path(__file__).parent


def raised(function) -> BaseException:
    try:
        function()
    except (Exception, SystemExit) as error:
        return error
    raise AssertionError("nothing was raised")


def wrapped():
    try:
        {}["lost"]
    except KeyError as error:
        raise RuntimeError("while running a node") from error


def test_the_first_of_a_chain_is_shown_with_the_users_line():
    assert explain(raised(wrapped), HERE) == f"KeyError: 'lost'\n  at {__file__}, line 20, in wrapped\n    {{}}[\"lost\"]"


def test_a_message_for_people_is_given_as_it_is():
    def wrong():
        try:
            raise OSError("Address already in use")
        except OSError as error:
            raise ConfigurationError("serving_dir: is taken; write another") from error

    assert explain(raised(wrong), HERE) == "serving_dir: is taken; write another"


def test_exit_is_named_with_the_users_line():
    lines = explain(raised(lambda: sys.exit(0)), HERE).splitlines()
    assert lines[0].startswith(f"sys.exit(0) was called in {__file__}, line ")
    assert lines[-1] == "    lines = explain(raised(lambda: sys.exit(0)), HERE).splitlines()"


def test_long_messages_are_cut():
    lines = explain(ValueError("\n".join(map(str, range(100)))), HERE).splitlines()
    assert len(lines) == 13
    assert lines[-1].strip() == "..."

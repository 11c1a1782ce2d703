import sys
from pathlib import Path

import apache_beam as beam
import pytest
from beam_arguments import IN_MEMORY, TWO_PROCESSES

from tfx_distribute.pipelines.cli.shown_run import explain
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

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
    assert explain(raised(wrapped), HERE) == f"KeyError: 'lost'\n  at {__file__}, line 24, in wrapped\n    {{}}[\"lost\"]"


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


@pytest.mark.parametrize("arguments", [IN_MEMORY, TWO_PROCESSES], ids=["in this process", "in workers"])
def test_what_fails_in_beam_is_explained_like_anything_else(arguments):
    def refuse(element):
        try:
            raise OSError("no such row")
        except OSError as error:
            raise DataError("data.csv, line 7: has 3 cells;\nwrite 4") from error

    def fail(element):
        return {"a": 1}[element]

    def explained(function):
        with pytest.raises(Exception) as caught, beam.Pipeline(argv=arguments) as pipeline:  # noqa: PT011
            _ = pipeline | beam.Create(["b"]) | "Mine" >> beam.Map(function)
        return explain(caught.value, HERE)

    assert explained(refuse) == "data.csv, line 7: has 3 cells;\nwrite 4"
    line = fail.__code__.co_firstlineno + 1
    assert explained(fail) == f"KeyError: 'b'\n  at {__file__}, line {line}, in fail\n    return {{\"a\": 1}}[element]"

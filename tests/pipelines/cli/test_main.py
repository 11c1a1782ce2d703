"""Tests each option of each command, in all of its forms."""

from collections.abc import Iterator

import click
import pytest

from tfx_distribute.pipelines.cli.main import main


def forms(option: click.Option) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yields all forms of an option: words, and the expected value."""
    for form in option.opts:
        if option.is_flag:
            yield (form,), True
            continue
        word = option.type.choices[0] if isinstance(option.type, click.Choice) else "7"
        value = option.type.convert(word, option, None)
        joined = f"{form}={word}" if form.startswith("--") else f"{form}{word}"
        for words in ((form, word), (joined,)):
            yield words, (value,) if option.multiple else value


@pytest.mark.parametrize("name", main.commands)
def test_each_option_goes_before_and_after_the_pipeline(name):
    command = main.commands[name]
    pipeline = ["pipeline.yaml"] if any(isinstance(param, click.Argument) for param in command.params) else []
    for option in (param for param in command.params if isinstance(param, click.Option)):
        required = ["--target", "vertex"] if name in ("compile", "submit") and option.name != "target_class" else []
        for words, value in forms(option):
            before = command.make_context(name, [*required, *words, *pipeline]).params
            assert before == command.make_context(name, [*pipeline, *words, *required]).params
            assert before[option.name] == (option.callback(None, option, value) if option.callback else value), words

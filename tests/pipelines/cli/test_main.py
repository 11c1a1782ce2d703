"""Tests each option of each command, in all of its forms."""

import click
import pytest

from tfx_distribute.pipelines.cli.main import main


def option_rows() -> list[tuple[str, tuple[str, ...], str, object]]:
    """Lists all options of all commands: command, words, name, and expected value."""
    rows: list[tuple[str, tuple[str, ...], str, object]] = []
    for command, option in ((name, option) for name in main.commands for option in main.commands[name].params):
        if not isinstance(option, click.Option):
            continue
        for form in option.opts:
            if option.is_flag:
                rows.append((command, (form,), option.name, True))
                continue
            word = option.type.choices[0] if isinstance(option.type, click.Choice) else "7"
            value = option.type.convert(word, option, None)
            joined = f"{form}={word}" if form.startswith("--") else f"{form}{word}"
            for words in ((form, word), (joined,)):
                rows.append((command, words, option.name, (value,) if option.multiple else value))
    return rows


@pytest.mark.parametrize(("name", "words", "option", "value"), option_rows(), ids=str)
def test_each_option_goes_before_and_after_the_pipeline(name, words, option, value):
    command = main.commands[name]
    required = ["--target", "vertex"] if name in ("compile", "submit") and option != "target_name" else []
    pipeline = ["pipeline.yaml"] if any(isinstance(param, click.Argument) for param in command.params) else []
    before = command.make_context(name, [*required, *words, *pipeline]).params
    assert before == command.make_context(name, [*pipeline, *words, *required]).params
    assert before[option] == value

"""Writes the files that are generated from the code: run `make generated`.

`trainer_module/job/parameters.py` declares the pipeline parameters. From there come
their reference in `docs/parameters.md`, and the stubs that show editors and type
checkers what is only known when the code runs. `docs/pipeline.schema.json` is what
`tfx-distribute schema` prints.
"""

import inspect
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from click.testing import CliRunner

from tfx_distribute.pipelines.cli.main import main as command_line
from tfx_distribute.trainer_module.job.declaration import Declaration, declarations
from tfx_distribute.trainer_module.job.parameters import GROUPS

ROOT = Path(__file__).resolve().parents[1]

Groups = Sequence[type]

_WIDTH = 88
_NOTICE = "Generated from trainer_module/job/parameters.py by `make generated`; do not edit."
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def reference(groups: Groups) -> str:
    """Returns the reference of all parameters in Markdown."""
    parts = [
        f"<!-- {_NOTICE} -->",
        "# Pipeline parameters",
        _wrap(
            "The parameters of training. Write the pipeline's values under `trainer.parameters` in the pipeline file, or "
            "pass them to `Parameters(...)` in Python. `-p name=value` on the command line replaces a value for one run. "
            "The `Trainer` component takes all of them as arguments, each a value or a RuntimeParameter; "
            "a RuntimeParameter of a boolean is 0 or 1."
        ),
    ]
    for group in groups:
        parts += [f"## {group.__name__}", *map(_wrap, (inspect.getdoc(group) or "").split("\n\n"))]
        for declared in declarations(group):
            parts += [f"### `{declared.name}`", _wrap(f"{_type_and_limits(declared)}."), _wrap(declared.help)]
    return "\n\n".join(parts) + "\n"


def model_stub(groups: Groups) -> str:
    """Returns the stub of `pipelines.spec.parameters`."""
    lines = [
        f"# {_NOTICE}",
        "from tfx_distribute.pipelines.spec.parameter_model import ParameterModel",
        "",
        "class Parameters(ParameterModel):",
    ]
    for declared in declarations(*groups):
        default = _source(declared.default)
        lines += [f"    {declared.name}: {declared.type.__name__} = {default}", *_attribute_docstring(declared.help)]
    return "\n".join(lines) + "\n"


def arguments_stub(groups: Groups) -> str:
    """Returns the stub of `components.trainer.arguments`."""
    lines = [
        f"# {_NOTICE}",
        "from typing import TypedDict",
        "",
        "from tfx.orchestration.data_types import RuntimeParameter",
        "",
        "class TrainerArguments(TypedDict, total=False):",
    ]
    for declared in declarations(*groups):
        text = f"{declared.help} Default: {_source(declared.default)}."
        lines += [f"    {declared.name}: {declared.type.__name__} | RuntimeParameter | None", *_attribute_docstring(text)]
    return "\n".join(lines) + "\n"


def schema(_: Groups) -> str:
    """Returns the JSON Schema of the pipeline file."""
    return CliRunner().invoke(command_line, ["schema"], catch_exceptions=False).output


FILES: dict[str, Callable[[Groups], str]] = {
    "docs/parameters.md": reference,
    "docs/pipeline.schema.json": schema,
    "pipelines/spec/parameters.pyi": model_stub,
    "components/trainer/arguments.pyi": arguments_stub,
}


def main() -> None:
    """Writes all files, and prints the names of those that changed."""
    for name, make in FILES.items():
        path, text = ROOT / name, make(GROUPS)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")


def _type_and_limits(declared: Declaration) -> str:
    kind = _JSON_TYPES[declared.type]
    value = "true" if declared.default is True else "false" if declared.default is False else declared.default
    default = f"default `{value}`" if value != "" else "empty by default"
    limits = [
        f"{words} {limit:,}"
        for words, limit in (("at least", declared.minimum), ("at most", declared.maximum), ("below", declared.below))
        if limit is not None
    ]
    if declared.choices:
        limits.append("one of " + ", ".join(f"`{choice}`" for choice in declared.choices))
    return ", ".join([kind.capitalize(), default, *limits])


def _source(value: str | int | float | bool) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _attribute_docstring(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH - 10, break_long_words=False, break_on_hyphens=False)
    lines[0] = f'"""{lines[0]}'
    return [f"    {line}" for line in (*lines[:-1], f'{lines[-1]}"""')]


def _wrap(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    main()

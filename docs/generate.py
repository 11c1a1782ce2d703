"""Writes the files that are generated from the code: run `make generated`.

`trainer_module/job/parameters.py` declares the pipeline parameters. From there come
their reference in `docs/parameters.md`, and the stubs that show editors and type
checkers what is only known when the code runs. `docs/pipeline-file.md` is made
from the classes of the pipeline file, and `docs/pipeline.schema.json` is what
`tfx-distribute json-schema` prints. A part of `docs/benchmarks.md` is made from what
`make gpu-bench` has measured.
"""

import inspect
import json
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tfx_distribute.pipelines.cli.main import main as command_line
from tfx_distribute.trainer_module.job.parameters import GROUPS, Declaration, declarations

ROOT = Path(__file__).resolve().parents[1]

Groups = Sequence[type]

_WIDTH = 88
_NOTICE = "Generated from trainer_module/job/parameters.py by `make generated`; do not edit."
_FILE_NOTICE = "Generated from the classes of the pipeline file by `make generated`; do not edit."
_GPU_BEGIN = "<!-- Generated from benchmarks/gpu.json by `make generated`; do not edit. -->"
_GPU_END = "<!-- End of the generated part. -->"
_JSON_TYPES = {str: "string", int: "integer", bool: "boolean"}


def reference(groups: Groups) -> str:
    """Returns the reference of all parameters in Markdown."""
    parts = [
        f"<!-- {_NOTICE} -->",
        "# Pipeline parameters",
        _wrap(
            "The parameters of training. Write values under `trainer.parameters` in the pipeline file, or pass them to "
            "`Parameters(...)` or the `Trainer` component in Python. `-p name=value` on the command line replaces a value "
            "for one run; it also takes each hyperparameter of `trainer.hparams`, `span` of `data`, `stop_on_anomalies` "
            "of `validate`, `num_shards` of `shards` and `base_model` of `trainer`."
        ),
        _wrap(
            "In a pipeline that is compiled for Kubeflow Pipelines or Vertex AI, the hyperparameters are one parameter, "
            'such as `hparams={"learning_rate": 0.01}`, which replaces all of them, and `base_model` is fixed. A '
            "RuntimeParameter of a boolean is 0 or 1. With TFX's LocalDagRunner, write a value in place of a "
            "RuntimeParameter whose default is 0 or empty: the component fails with `Parameter value not ready`."
        ),
    ]
    for group in groups:
        parts += [f"## {group.__name__}", *map(_wrap, (inspect.getdoc(group) or "").split("\n\n"))]
        for declared in declarations(group):
            parts += [f"### `{declared.name}`", _wrap(f"{_type_and_limits(declared)}."), _wrap(declared.help)]
    return "\n\n".join(parts) + "\n"


def model_stub(groups: Groups) -> str:
    """Returns the stub with `Parameters` of `pipelines.spec.pipeline`."""
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


def pipeline_file(_: Groups) -> str:
    """Returns the reference of all keys of a pipeline file in Markdown."""
    from tfx_distribute.pipelines.spec.pipeline import PipelineSpec

    document = PipelineSpec.model_json_schema()
    parts = [
        f"<!-- {_FILE_NOTICE} -->",
        "# Pipeline file",
        _wrap(
            "All keys of a pipeline file, and of the classes in `tfx_distribute.pipelines` that have their names. Paths "
            "of inputs are relative to the file, paths of outputs to the working folder. Editors complete and check keys "
            "with [pipeline.schema.json](pipeline.schema.json). A key without a value is a mistake, unless it may be `null`."
        ),
        "## Top level",
        *_keys(document),
    ]
    for name in _in_order(document):
        if name == "Parameters":
            continue
        section = document["$defs"][name]
        description = [_wrap(text) for text in section.get("description", "").split("\n\n") if "```" not in text]
        parts += [f"## {name}", *description, *_keys(section)]
    return "\n\n".join(parts) + "\n"


def _in_order(document: dict[str, Any]) -> list[str]:
    """Returns the names of all classes, in the order of the first reference."""
    names: list[str] = []

    def visit(part: dict[str, Any]) -> None:
        for name in _references(part.get("properties", {})):
            if name not in names:
                names.append(name)
                visit(document["$defs"][name])

    visit(document)
    return names


def _references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"].rpartition("/")[2]] if "$ref" in part else []
        return own + [name for value in part.values() for name in _references(value)]
    return [name for value in part for name in _references(value)] if isinstance(part, list) else []


def _keys(section: dict[str, Any]) -> list[str]:
    """Returns an item for each key of a class: its type, default and description."""
    items = []
    for key, value in section.get("properties", {}).items():
        facts = [_type_of(value)]
        if key in section.get("required", ()):
            facts.append("required")
        elif value.get("default") not in (None, "", {}, []) and not _references(value):
            facts.append(f"default `{json.dumps(value['default'])}`")
        text = f"* `{key}` ({', '.join(facts)}): {' '.join(value.get('description', '').split())}"
        if "Parameters" in _references(value):
            text += " See [parameters.md](parameters.md)."
        items.append(_wrap(text, subsequent_indent="  "))
    return ["\n".join(items)] if items else []


def _type_of(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name != "Parameters" else name
    if "enum" in value:
        return "one of " + ", ".join(f"`{json.dumps(choice)}`" for choice in value["enum"])
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "anyOf" in value:
        kinds = [_type_of(kind) for kind in value["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if value.get("type") == "array":
        return f"list of {_type_of(value['items'])}"
    if value.get("type") == "object":
        # A mapping whose keys have a pattern has its values there.
        inner = next(iter(value.get("patternProperties", {}).values()), value.get("additionalProperties"))
        return f"map to {_type_of(inner)}" if isinstance(inner, dict) else "map"
    return str(value.get("type", "any value"))


def schema(_: Groups) -> str:
    """Returns the JSON Schema of the pipeline file."""
    return CliRunner().invoke(command_line, ["json-schema"], catch_exceptions=False).output


def benchmarks(_: Groups) -> str:
    """Returns the page of benchmarks, with the figures of `benchmarks/gpu.json`."""
    page, path = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), ROOT / "benchmarks" / "gpu.json"
    before, _, rest = page.partition(_GPU_BEGIN)
    figures = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return f"{before}{_GPU_BEGIN}\n\n{gpu_section(figures)}\n\n{_GPU_END}{rest.partition(_GPU_END)[2]}"


def gpu_section(figures: dict[str, Any] | None) -> str:
    """Returns the measured figures in Markdown.

    Args:
      figures: What `benchmarks/gpu.py` has written; None if it has not run.

    Raises:
      ValueError: They are those of a rehearsal, without a GPU.
    """
    if figures is None:
        return "Nothing has been measured on a GPU yet."
    if figures["rehearsal"]:
        raise ValueError("benchmarks/gpu.json is from a rehearsal without a GPU; delete it")
    rows = figures["rows"]
    columns = [name for name in rows[0] if name != "device"]
    formats = {**dict.fromkeys(("ours", "fit", "loop"), ",.0f"), **dict.fromkeys(("ours/fit", "ours/loop"), ".2f")}
    formats |= {"input": ".1%", "alone": ".1f"}
    lines = [columns, ["---"] * len(columns)]
    lines += [[format(row[name], formats.get(name, "")) for name in columns] for row in rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    machine = f"On one {figures['device']} with {figures['cores']} cores and TensorFlow {figures['tensorflow']}:"
    return f"{_wrap(machine)}\n\n{table}"


FILES: dict[str, Callable[[Groups], str]] = {
    "docs/benchmarks.md": benchmarks,
    "docs/parameters.md": reference,
    "docs/pipeline-file.md": pipeline_file,
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
    limits = [] if declared.minimum is None else [f"at least {declared.minimum:,}"]
    if declared.choices:
        lead = "one of" if all(declared.choices) else "or one of"  # one that is empty is the default
        limits.append(f"{lead} " + ", ".join(f"`{choice}`" for choice in declared.choices if choice))
    return ", ".join([kind.capitalize(), default, *limits])


def _source(value: str | int | bool) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _attribute_docstring(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH - 10, break_long_words=False, break_on_hyphens=False)
    lines[0] = f'"""{lines[0]}'
    return [f"    {line}" for line in (*lines[:-1], f'{lines[-1]}"""')]


def _wrap(text: str, subsequent_indent: str = "") -> str:
    lines = textwrap.wrap(text, _WIDTH, subsequent_indent=subsequent_indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""Checks the documents: examples run and print what is shown, links and names exist."""

import importlib.util
import re
from pathlib import Path

import click
import pytest
from doc_examples import blocks, python_blocks
from forked import run_container

from tfx_distribute.pipelines.cli.main import main

WIDTH = 88
GENERATED = ("parameters.md", "pipeline-file.md")  # tested where they are written
_EXAMPLE = re.compile(r"^(<!-- e2e -->\n)?```python\n(.*?)\n```$(?:\n\n```\n(.*?)\n```$)?", re.M | re.S)
_SEPARATOR = "=== end of example ==="
# What paths in backticks begin with. Other words with slashes are not such paths.
_FOLDERS = ("benchmarks", "components", "docs", "examples", "pipelines", "src", "tests", "trainer_module")


def documents(root: Path) -> list[Path]:
    top = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    return [*(root / name for name in top), *sorted((root / "docs").glob("*.md"))]


@pytest.mark.e2e
def test_examples_print_what_is_shown(forked, request, tmp_path):
    """Those of the Python API, in one process, as a reader would run them."""
    root = request.config.rootpath
    found = [match.groups() for match in _EXAMPLE.finditer((root / "docs" / "python-api.md").read_text())]
    (tmp_path / "examples").symlink_to(root / "examples")
    code = [f"{code}\nprint({_SEPARATOR!r})\n" for _, code, _ in found]
    redirect = "import sys\nsys.stdout = open('printed', 'w', buffering=1)"  # what is logged goes elsewhere
    (tmp_path / "example.py").write_text("\n".join([redirect, *code]))
    returncode, log = run_container(["python", "example.py"], {}, tmp_path / "log", forked)
    assert returncode == 0, log[-3000:]
    printed = [text.strip() for text in (tmp_path / "printed").read_text().split(_SEPARATOR)][:-1]
    pairs = [(text, shown or "") for text, (runs, _, shown) in zip(printed, found, strict=True) if not runs]
    assert len(pairs) > 5
    assert [text for text, _ in pairs] == [shown for _, shown in pairs]
    (of_run,) = [text for text, (runs, _, _) in zip(printed, found, strict=True) if runs]
    metric, trained, pushed = of_run.splitlines()[-3:]
    assert metric == "SparseCategoricalAccuracy True ()"
    assert trained == "2 True"
    assert (Path(pushed) / "saved_model.pb").is_file()


def test_python_in_documents_compiles(request):
    for document in documents(request.config.rootpath):
        for code in python_blocks(document):
            compile(code, document.name, "exec")


def test_parts_of_pipeline_files_are_valid(request):
    """Each shown part, in place of that of an example."""
    import yaml

    from tfx_distribute.pipelines import Parameters, PipelineSpec

    root = request.config.rootpath
    example = yaml.safe_load((root / "examples" / "digits" / "pipeline.yaml").read_text())
    shown = 0
    for document in documents(root):
        for text in blocks(document, "yaml"):
            part = yaml.safe_load(text) or {}
            if set(part) == {"parameters"}:
                Parameters.model_validate(part["parameters"])
            if set(part) <= set(PipelineSpec.model_fields):
                PipelineSpec.model_validate({**example, **part})
                shown += bool(part)
    assert shown > 6


def test_no_code_is_empty(request):
    for document in documents(request.config.rootpath):
        assert not re.search(r"(?<!`)``(?!`)", document.read_text()), document.name


def test_the_parameters_that_a_comparison_refuses_are_listed(request):
    from tfx_distribute.pipelines import compare

    text = (request.config.rootpath / "docs" / "scaling.md").read_text()
    listed = text.partition("are refused:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == {*compare.LENGTHS, *compare.MEASURED_TRAINING}


def test_links_exist(request):
    for document in documents(request.config.rootpath):
        text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in link:
                continue
            file, _, heading = link.partition("#")
            linked = document.parent / file if file else document
            assert linked.exists(), f"{document.name}: {link}"
            if heading:
                assert heading in anchors(linked), f"{document.name}: {link}"


def anchors(document: Path) -> set[str]:
    """Returns the anchors that GitHub makes of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_paths_exist(request):
    root = request.config.rootpath
    for document in documents(root):
        if document.name == "CHANGELOG.md":  # has names of the past too
            continue
        text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
        for name in re.findall(rf"`((?:{'|'.join(_FOLDERS)})/[\w./-]*)`", text):
            assert (root / name).exists(), f"{document.name}: {name}"


def test_modules_exist(request):
    for document in documents(request.config.rootpath):
        for name in re.findall(r"\btfx_distribute\.[\w.]*\w", document.read_text()):
            parts = name.split(".")
            if importlib.util.find_spec(".".join(parts[:2])) and len(parts) > 2:
                head = ".".join(parts[:-1])
                assert importlib.util.find_spec(head), f"{document.name}: {name}"
                if importlib.util.find_spec(head).submodule_search_locations is None or not importlib.util.find_spec(name):
                    assert hasattr(importlib.import_module(head), parts[-1]), f"{document.name}: {name}"


def test_every_page_is_in_the_index(request):
    folder = request.config.rootpath / "docs"
    index = (folder / "README.md").read_text()
    for page in folder.glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, page.name


def test_lines_are_short(request):
    """Except tables, addresses, and the output of programs."""
    for document in documents(request.config.rootpath):
        if document.name in GENERATED:
            continue
        in_block = False
        for number, line in enumerate(document.read_text().splitlines(), 1):
            in_block ^= line.startswith("```")
            exempt = in_block or line.startswith(("|", "* |")) or "://" in line
            assert exempt or len(line) <= WIDTH, f"{document.name}, line {number}"


def test_the_command_line_page_has_every_option_and_exit_code(request):
    text = (request.config.rootpath / "docs" / "command-line.md").read_text()
    for name, command in main.commands.items():
        section = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert section, name
        subcommands = command.commands if isinstance(command, click.Group) else {}
        for subcommand in subcommands:
            assert f"`{name} {subcommand}" in section, subcommand
        for parameter in (parameter for part in (command, *subcommands.values()) for parameter in part.params):
            if isinstance(parameter, click.Option):
                for option in (*parameter.opts, *([parameter.envvar] if parameter.envvar else [])):
                    assert option in section, f"{name} {option}"

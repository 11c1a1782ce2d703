"""Checks that the README and the documents show what the code does."""

import json
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from doc_examples import blocks
from packaging.requirements import Requirement

from tfx_distribute.pipelines.cli.main import main


@pytest.fixture(scope="module")
def readme(request) -> Path:
    return request.config.rootpath / "README.md"


def test_shows_the_example_as_it_is(readme, request):
    example = request.config.rootpath / "examples" / "digits"
    assert blocks(readme, "yaml") == [(example / "pipeline.yaml").read_text()]
    assert blocks(readme, "python")[0] == (example / "model.py").read_text()


def test_shows_the_message_of_a_mistake(readme, request, tmp_path):
    """The file name stands for any; the rest is word for word."""
    text = blocks(readme, "yaml")[0].replace("{lower_bound", "{lower_bond")
    (tmp_path / "mistake.yaml").write_text(text)
    result = CliRunner().invoke(main, ["validate", str(tmp_path / "mistake.yaml")])
    assert result.exit_code == 2
    (shown,) = [block for block in blocks(readme) if block.startswith("Error")]
    assert result.output.partition(", ")[2] == shown.partition(", ")[2]


def test_shows_what_plan_prints(readme, request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    (command,) = [block for block in blocks(readme, "sh") if block.startswith("tfx-distribute plan")]
    result = CliRunner().invoke(main, command.split()[1:])
    assert result.exit_code == 0, result.output
    assert result.output in blocks(readme)


def test_shows_what_init_prints(readme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (command,) = [block for block in blocks(readme, "sh") if block.startswith("tfx-distribute init")]
    result = CliRunner().invoke(main, command.partition("#")[0].split()[1:])
    assert result.exit_code == 0, result.output
    assert result.output in blocks(readme)


def test_is_short(readme):
    assert len(re.sub(r"^```.*?^```$", "", readme.read_text(), flags=re.M | re.S).split()) <= 900


def test_names_every_parameter_value(readme, request):
    from tfx_distribute.trainer_module.job import strategy_table
    from tfx_distribute.trainer_module.job.parameters import Distribution, declarations

    choices = {parameter.name: parameter.choices for parameter in declarations(Distribution)}
    strategies = (request.config.rootpath / "docs" / "strategies.md").read_text()
    for name in (*strategy_table.STRATEGIES, *choices["accelerator_type"]):
        assert f"`{name}`" in readme.read_text(), name
        assert f"`{name}`" in strategies, name
    for name in choices["all_reduce"]:
        assert f"`{name}`" in strategies, name


def test_table_of_what_goes_with_what_is_the_codes(request):
    from tfx_distribute.trainer_module.job import strategy_table

    text = (request.config.rootpath / "docs" / "strategies.md").read_text()
    shown = text.partition("<!-- compatibility -->\n")[2].partition("<!-- /compatibility -->")[0].splitlines()[2:]
    rows = []
    for row in strategy_table.STRATEGIES.values():
        cells = (
            f"`{row.name}`",
            "2" if "keras_version" in row.refuses else "2, 3",
            "many" if row.multi_worker else "one",
            ", ".join(row.accelerators),
            ", ".join(row.all_reduce),
            "no" if "gradient_accumulation_steps" in row.refuses else "yes",
            "no" if "jit_compile" in row.refuses else "yes",
            "yes" if row.run_fn else "no",
        )
        rows.append("| " + " | ".join(cells).replace("|  |", "| |") + " |")
    assert shown == rows


@pytest.mark.parametrize("module", ["model.py", "task.py"])
def test_documents_show_the_examples_as_they_are(request, module):
    root = request.config.rootpath
    text = (root / "docs" / "writing-a-module.md").read_text()
    assert (root / "examples" / "digits" / module).read_text().rstrip() in text


def test_defaults_against_faults_are_the_codes(request):
    from dataclasses import fields

    from tfx_distribute.trainer_module.job.training_job import FaultTolerance

    faults = (request.config.rootpath / "docs" / "faults.md").read_text()
    for field in fields(FaultTolerance):
        assert f"| `{field.name}` | {json.dumps(field.default)} |" in faults


@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_the_target_that_a_document_shows_is_that_of_the_example(target, request):
    root = request.config.rootpath
    (shown,) = blocks(root / "docs" / f"{target}.md", "yaml")
    example = (root / "examples" / "digits" / f"{target}.yaml").read_text()
    assert example.endswith(f"\n{shown}")


def test_the_commands_that_documents_show_are_there(request):
    """Each with its options; what they do is tested where they are."""
    root = request.config.rootpath
    shown = [block for file in (root / "README.md", *(root / "docs").glob("*.md")) for block in blocks(file, "sh")]
    lines = "\n".join(shown).replace("\\\n", " ").splitlines()
    words = [shlex.split(line.partition(" #")[0].partition(" |")[0]) for line in lines if line.startswith("tfx-distribute ")]
    assert len(words) > 6
    for _, name, *arguments in words:
        command = main.commands[name]
        while isinstance(command, click.Group):
            name, *arguments = arguments
            command = command.commands[name]
        with command.make_context(name, list(arguments)) as context:
            assert context.params


PYTHONS = {"1.16": "3.10", "1.21": "3.13"}  # of the images
LOCKS = ("packages", "image-cpu", "image-gpu")


def read_lock(file, python):
    """Returns the version of each package that a lock has for a version of Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    requirements = map(Requirement, re.findall(r"^[a-z0-9].*?(?= \\$)", file.read_text(), re.M))
    return {
        requirement.name: str(requirement.specifier).removeprefix("==")
        for requirement in requirements
        if not requirement.marker or requirement.marker.evaluate(environment)
    }


def test_the_image_starts_beam_as_the_packages_have_it(request):
    root = request.config.rootpath
    for line, python in PYTHONS.items():
        for lock in LOCKS:
            beam = read_lock(root / "lines" / line / f"{lock}.lock", python)["apache-beam"]
            assert f"BEAM_IMAGE=apache/beam_python{python}_sdk:{beam}\n" in (root / "Dockerfile").read_text()


@pytest.mark.parametrize("line", PYTHONS)
@pytest.mark.parametrize("kind", ["image-cpu", "image-gpu"])
def test_the_image_has_the_versions_that_are_tested(request, line, kind):
    folder = request.config.rootpath / "lines" / line
    tested, image = (read_lock(folder / f"{lock}.lock", PYTHONS[line]) for lock in ("packages", kind))
    image["tensorflow"] = image.pop("tensorflow-cpu", None) or image["tensorflow"]
    assert {"tfx", "tensorflow", "kfp-pipeline-spec", "kubernetes"} <= set(image)
    assert {name: version for name, version in image.items() if name in tested} == {
        name: tested[name] for name in image if not name.startswith("nvidia-")
    }

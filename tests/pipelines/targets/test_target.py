"""Tests that a target is one folder and one line of the registry, or an entry point."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfx_distribute.pipelines import target_names
from tfx_distribute.pipelines.targets import target as target_lib

SETTINGS = '''
from tfx_distribute.components.spec_model import SpecModel

class PrinterSettings(SpecModel):
    """A printer."""
    tray: str
    copies: int = 1
'''

TARGET = """
import json
import click
from tfx_distribute.pipelines.targets.target import RemoteTarget
from tfx_distribute.trainer_module.errors import ConfigurationError

class Paper:
    num_steps, warnings = 2, ()
    def __init__(self, text): self.text = text
    def to_text(self): return self.text

class PrinterTarget(RemoteTarget["PrinterSettings"]):
    name = "printer"
    title = "A printer"
    suffix = ".txt"
    setting_options = ("tray",)
    compile_options = (click.Option(["--tray"], help="Printer: tray."), click.Option(["--region"], help="Room."))
    submit_options = (click.Option(["--color"], is_flag=True, help="Printer: in color."),)

    @classmethod
    def settings_class(cls):
        from printer.settings import PrinterSettings
        return PrinterSettings

    def validate(self):
        from printer.settings import PrinterSettings
        settings = self.spec.targets.find(PrinterSettings)
        if settings is None:
            raise ConfigurationError("targets.printer: is missing")
        print("validated")
        return settings

    def launcher_settings(self):
        raise NotImplementedError

    def launches(self):
        return {"kind": "PaperJob"}

    @classmethod
    def compile_pipeline(cls, pipeline, settings, resources, defaults=None):
        return Paper(f"{pipeline} from {settings.tray}")

    def compile(self, module, enable_cache=True):
        return Paper(f"{self.spec.name} from {self.settings.tray}")

    def submit(self, package, arguments, wait, report):
        report(f"printed {package.to_text()}, {arguments}, color={self.options['color']}")
        return not wait
"""

# Answers each line, a command as JSON, with its exit code and output.
MAIN = """
import json, sys
import click
from click.testing import CliRunner
from tfx_distribute.pipelines.cli.main import main

@main.command("compile_pipeline")
def compile_pipeline_command():
    from printer.settings import PrinterSettings
    from tfx_distribute.pipelines import ConfigurationError, Toleration, compile_pipeline
    print(compile_pipeline("mine", PrinterSettings(tray="left")).to_text())
    try:
        compile_pipeline("mine", Toleration())
    except ConfigurationError as error:
        print(error)

for line in sys.stdin:
    result = CliRunner().invoke(main, json.loads(line))
    print(json.dumps([result.exit_code, result.output]), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("printer")


@pytest.fixture(scope="module")
def command(folder):
    """Runs a command with a fourth target, of another package.

    Returns exit code and output.
    """
    installed = folder / "printer-1.0.dist-info"
    installed.mkdir()
    (installed / "entry_points.txt").write_text("[tfx_distribute.targets]\nprinter = printer.target:PrinterTarget\n")
    package = folder / "printer"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text(SETTINGS)
    (package / "target.py").write_text(TARGET)
    (folder / "model.py").write_text("def build_model(context): ...\n")
    (folder / "data.csv").write_text("x,y\n1,2\n")
    (folder / "pipeline.yaml").write_text(
        "name: mine\nmodule: model.py\ndata: {csv: data.csv}\ntrainer: {label: y, parameters: {epochs: 1}}\n"
        "targets: {printer: {tray: top}}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(*words: str) -> tuple[int, str]:
        print(json.dumps(words), file=process.stdin, flush=True)
        code, output = json.loads(process.stdout.readline())
        return code, output

    with process:
        yield run
        process.stdin.close()


def test_a_fourth_target_is_planned_for(command):
    code, output = command("plan", "pipeline.yaml", "--target", "printer")
    assert code == 0, output
    assert output.count("validated") == 1
    assert output.endswith("They run as:\nkind: PaperJob\n")


def test_a_fourth_target_is_validated_for(command, folder):
    module = f"mine: build_model of {folder}/model.py"
    code, output = command("validate", "pipeline.yaml", "--target", "printer", "--tray", "bottom")
    assert (code, output) == (0, f"validated\npipeline.yaml: valid for A printer ({module})\n")
    code, output = command("validate", "pipeline.yaml", "--tray", "bottom")
    assert (code, output) == (2, "Error: --tray: goes with --target printer, not with --target local\n")


def test_a_fourth_target_is_compiled_for(command, folder):
    code, output = command("compile", "pipeline.yaml", "--target", "printer", "--tray", "bottom")
    assert (code, output) == (0, "validated\nmine.txt: mine, 2 steps\n")
    assert (folder / "mine.txt").read_text() == "mine from bottom"


def test_a_fourth_target_compiles_pipelines_written_in_python(command):
    code, output = command("compile_pipeline")
    assert (code, output.splitlines()) == (
        0,
        [
            "mine from left",
            "target: Toleration is not one of KubeflowSettings, PrinterSettings, VertexSettings; write one of them",
        ],
    )


def test_a_fourth_target_is_submitted_to(command):
    words = ("submit", "pipeline.yaml", "--target", "printer", "--color", "--region", "hall", "-p", "epochs=3")
    code, output = command(*words)
    assert code == 0, output
    assert output.count("validated") == 1
    assert output.endswith("\nprinted mine from top, {'epochs': 3}, color=True\n")
    assert command(*words, "--wait")[0] == 1


def test_a_fourth_target_has_settings_and_options_of_its_own(command):
    code, output = command("json-schema")
    assert code == 0, output
    assert json.loads(output)["$defs"]["Targets"]["properties"]["printer"]["$ref"] == "#/$defs/PrinterSettings"
    code, output = command("submit", "pipeline.yaml", "--target", "kubeflow", "--color")
    assert (code, output) == (2, "Error: --color: goes with --target printer, not with --target kubeflow\n")
    code, output = command("validate", "pipeline.yaml")
    assert code == 0, "the section of another target is read"


@pytest.mark.parametrize("name", target_names.names())
def test_each_target_is_registered_under_its_name(name):
    target = target_names.get(name)
    assert target.name == name
    fields = target.settings_class().model_fields
    assert set(target.setting_options) <= set(fields)
    assert (Path(target_lib.__file__).parent / name / "settings.py").is_file()

"""Tests that frequent commands import nothing heavy."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "apprise",
    "tensorflow",
    "tfx",
    "apache_beam",
    "kfp",
    "google.cloud.aiplatform",
    "google.api_core",
    "numpy",
    "pandas",
    "ml_metadata",
    "tensorflow_transform",
)


def imported(code: str) -> set[str]:
    """Returns the modules that some code imports in a new process."""
    tail = "\nimport json, sys; print(json.dumps(sorted(sys.modules)), file=sys.__stdout__)"
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, timeout=180, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def run_commands(*commands: str) -> set[str]:
    """Returns the modules that are imported when commands run one after the other."""
    return imported(
        "from tfx_distribute.pipelines.cli.main import main\n"
        f"for command in {commands!r}:\n"
        "    try:\n        main(command.split())\n"
        "    except SystemExit as end:\n        assert end.code in (0, None), (command, end.code)"
    )


def test_help_is_light():
    commands = ("", "run", "init", "report", "runs", "runs list", "notify", "schema", "compare", "compile", "submit")
    modules = run_commands(*(f"{command} --help" for command in commands))
    assert not modules & {*HEAVY, "pydantic"}, "help needs no models"


@pytest.mark.parametrize(
    "command",
    [
        "json-schema",
        "validate examples/digits/pipeline.yaml",
        "validate examples/digits/kubeflow.yaml --target kubeflow",
        "plan examples/taxi/pipeline.yaml",
        "plan examples/digits/vertex.yaml --target vertex",
    ],
)
def test_light_commands(command, request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    assert not run_commands(command) & {*HEAVY}


def test_a_project_is_made_without_tensorflow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = run_commands("init iris")
    assert not modules & {*HEAVY} - {"numpy", "pandas"}, "scikit-learn and newer versions of pyarrow import pandas"


def test_training_processes_import_no_tfx():
    modules = imported(
        "import os; os.environ['TF_USE_LEGACY_KERAS'] = '1'\nfrom tfx_distribute.trainer_module import fork_server, process"
    )
    assert "tensorflow" in modules
    heavy = ("tfx", "apache_beam", "kfp", "google.cloud.aiplatform", "ml_metadata", "tfx_distribute.components")
    assert not [name for name in heavy if name in modules]
    assert not [name for name in modules if name.startswith("tfx_distribute.pipelines")]


def test_local_runs_need_no_kfp():
    """TFX has it in extras only, and so has this package."""
    modules = imported(
        "import sys; sys.modules.update(dict.fromkeys(('kfp', 'kfp_server_api')))\n"
        "from tfx_distribute import components\n"
        "from tfx_distribute.pipelines.targets.local import results, runner"
    )
    assert "tfx" in modules


def test_processes_of_beam_import_no_tfx():
    modules = imported("from tfx_distribute.components.sharder import beam_pipeline")
    assert "apache_beam" in modules
    assert not [name for name in ("tfx", "kfp", "ml_metadata", "tensorflow_data_validation") if name in modules]


def test_floors_import_downwards_only(request):
    import ast

    below = {
        "trainer_module": {"trainer_module"},
        "components": {"trainer_module", "components"},
        "pipelines": {"trainer_module", "components", "pipelines"},
    }
    for floor, allowed in below.items():
        for file in (request.config.rootpath / floor).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                for name in names:
                    package, _, rest = name.partition(".")
                    assert package != "tfx_distribute" or rest.partition(".")[0] in {*allowed, "__version__"}, (
                        f"{file} imports {name}"
                    )


def test_parquet_needs_no_tensorflow(tmp_path, monkeypatch):
    """Only pyarrow, with numpy, is loaded to read the columns."""
    import pyarrow as pa
    from pyarrow import parquet

    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"x": [1.5, 2.5] * 4, "y": ["a", "b"] * 4}), "data.parquet")
    (tmp_path / "model.py").write_text("def build_model(context): ...\n")
    (tmp_path / "pipeline.yaml").write_text(
        "name: mine\nmodule: model.py\ndata: {parquet: data.parquet}\ntrainer: {label: y, parameters: {epochs: 1}}\n"
    )
    modules = run_commands("validate pipeline.yaml")
    assert "pyarrow" in modules
    assert not modules & {*HEAVY, "tfx_bsl"} - {"numpy"}
    # pyarrow loads pandas, where it is installed, to convert values.
    modules = run_commands("init mine --from data.parquet --label y")
    assert not modules & {*HEAVY, "tfx_bsl"} - {"numpy", "pandas"}

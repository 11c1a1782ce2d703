"""Checks the names that users import: they exist, are documented, and load little."""

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys

import pytest
from doc_examples import python_blocks

import tfx_distribute

PACKAGES = ("components", "pipelines", "trainer_module")
HEAVY = {"tensorflow", "tfx", "apache_beam", "kfp", "google.cloud.aiplatform", "numpy", "ml_metadata"}


def package(name: str):
    return importlib.import_module(f"tfx_distribute.{name}")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_there_and_documented(name):
    for public in package(name).__all__:
        value = getattr(package(name), public)
        assert value.__doc__, public
        assert public in dir(package(name))


def test_every_class_of_a_pipeline_file_is_public():
    pipelines = package("pipelines")
    assert set(pipelines.PipelineSpec.model_json_schema()["$defs"]) <= {
        getattr(getattr(pipelines, public), "__name__", "") for public in pipelines.__all__
    }


@pytest.mark.parametrize("name", PACKAGES)
def test_names_that_are_not_public_are_named(name):
    with pytest.raises(AttributeError, match="has no attribute 'Missing'"):
        _ = package(name).Missing


@pytest.mark.parametrize("name", PACKAGES)
def test_the_document_shows_every_public_name(name, request):
    document = request.config.rootpath / "docs" / "python-api.md"
    text, examples = document.read_text(), "\n".join(python_blocks(document))
    for public in package(name).__all__:
        assert f"`{public}" in text, public
        assert re.search(rf"\b{public}\b", examples), f"no example has {public}"


@pytest.mark.parametrize(
    "code",
    [
        "import tfx_distribute",
        "import tfx_distribute.components",
        "from tfx_distribute.trainer_module import ModelContext, Task",
        "from tfx_distribute.pipelines import ConfigurationError, KubeflowSettings, PipelineSpec, load, make_plan, run",
    ],
)
def test_imports_are_light(code):
    code += "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not HEAVY & set(json.loads(done.stdout))


def test_the_version_is_in_one_place(request):
    assert importlib.metadata.version("tfx-distribute") == tfx_distribute.__version__
    assert f'"{tfx_distribute.__version__}"' not in (request.config.rootpath / "setup.py").read_text()
    changes = (request.config.rootpath / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[(?!Unreleased)(.+?)\]", changes, re.M)[1] == tfx_distribute.__version__


def test_a_pipeline_can_be_loaded_planned_and_refused_from_python(request):
    from tfx_distribute.pipelines import ConfigurationError, load, make_plan

    file = request.config.rootpath / "examples" / "digits" / "pipeline.yaml"
    plan = make_plan(load(file, {"strategy": "multi_worker_mirrored", "num_workers": 2, "accelerator_count": 1}))
    assert [(role.role, role.num_processes) for role in plan.roles] == [("chief", 1), ("worker", 1)]
    assert plan.global_batch_size == 64
    with pytest.raises(ConfigurationError, match="there is no strategy 'fastest'"):
        load(file, {"strategy": "fastest"})
    with pytest.raises(ConfigurationError, match="targets.kubeflow"):
        make_plan(load(file), "kubeflow")

"""Checks that generated files are current and follow from one declaration."""

import ast
import importlib.util
import json
from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from tfx_distribute.trainer_module.job.declaration import declarations, parameter
from tfx_distribute.trainer_module.job.parameters import GROUPS


@pytest.fixture(scope="module")
def generate(request):
    path = request.config.rootpath / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "docs/benchmarks.md",
        "docs/parameters.md",
        "docs/pipeline-file.md",
        "docs/pipeline.schema.json",
        "pipelines/spec/parameters.pyi",
        "components/trainer/arguments.pyi",
    ],
)
def test_generated_file_is_current(generate, request, name):
    assert (request.config.rootpath / name).read_text() == generate.FILES[name](GROUPS), "run `make generated`"


def test_every_generated_file_is_tested(generate):
    (names,) = (mark.args[1] for mark in test_generated_file_is_current.pytestmark)
    assert set(names) == set(generate.FILES)


def test_main_writes_what_has_changed(generate, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "FILES", {"a.md": generate.reference})
    generate.main()
    assert (tmp_path / "a.md").read_text() == generate.reference(GROUPS)
    generate.main()
    assert capsys.readouterr().out == "wrote a.md\n"


@dataclass(frozen=True)
class Extra:
    """A group with one parameter more."""

    patience: int = parameter(3, "Epochs without progress before training stops.", minimum=1, maximum=9)


ALL = (*GROUPS, Extra)


def test_one_declaration_is_a_key_of_the_pipeline_file():
    from tfx_distribute.pipelines.spec.parameter_model import make_model

    model = make_model("Parameters", ALL, __name__)
    assert model().patience == 3
    assert model(patience=9, strategy="mirrored").distribution.strategy == "mirrored"
    with pytest.raises(ValidationError, match="patience\n  Input should be less than or equal to 9"):
        model(patience=10)
    with pytest.raises(ValidationError, match="patience\n  Input should be a valid integer"):
        model(patience="3")
    key = {
        "default": 3,
        "description": "Epochs without progress before training stops.",
        "maximum": 9,
        "minimum": 1,
        "title": "Patience",
        "type": "integer",
    }
    properties = model.model_json_schema()["properties"]
    assert json.dumps(properties["patience"], sort_keys=True) == json.dumps(key)
    assert list(properties) == [declared.name for declared in declarations(*ALL)]


def test_one_declaration_is_an_argument_of_the_component():
    from tfx_distribute.components.trainer import signature

    assert signature.execution_values(ALL, {"patience": 4}) == {"patience": 4}
    with pytest.raises(TypeError, match="unexpected keyword argument 'patients'"):
        signature.execution_values(ALL, {"patients": 4})
    assert signature.execution_parameters(ALL)["patience"].type is int


def test_one_declaration_is_documented(generate):
    assert generate.reference(ALL).endswith(
        "## Extra\n\nA group with one parameter more.\n\n"
        "### `patience`\n\nInteger, default `3`, at least 1, at most 9.\n\n"
        "Epochs without progress before training stops.\n"
    )


@pytest.mark.parametrize("make", ["model_stub", "arguments_stub"])
def test_one_declaration_is_in_the_stubs(generate, make):
    (stub,) = (node for node in ast.parse(getattr(generate, make)(ALL)).body if isinstance(node, ast.ClassDef))
    fields = [node for node in stub.body if isinstance(node, ast.AnnAssign)]
    assert [field.target.id for field in fields] == [declared.name for declared in declarations(*ALL)]
    assert (
        ast.unparse(fields[-1])
        == {
            "model_stub": "patience: int = 3",
            "arguments_stub": "patience: int | RuntimeParameter | None",
        }[make]
    )

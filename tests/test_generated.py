"""Checks that generated files are current: they follow from one declaration."""

import importlib.util

import pytest

from tfx_distribute.trainer_module.job.parameters import GROUPS


@pytest.fixture(scope="module")
def generate(request):
    path = request.config.rootpath / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_current(generate, request):
    assert len(generate.FILES) > 5
    for name, make in generate.FILES.items():
        assert (request.config.rootpath / name).read_text() == make(GROUPS), f"{name}: run `make generated`"


def test_main_writes_what_has_changed(generate, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "FILES", {"a.md": generate.reference})
    generate.main()
    assert (tmp_path / "a.md").read_text() == generate.reference(GROUPS)
    generate.main()
    assert capsys.readouterr().out == "wrote a.md\n"

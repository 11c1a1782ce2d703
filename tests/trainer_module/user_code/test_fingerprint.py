import os
from importlib import metadata

import pytest

from tfx_distribute.trainer_module.user_code import fingerprint


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "code"
    made.mkdir()
    (made / "model.py").write_text("import helpers\n")
    return made


def is_other(folder, change, **options) -> bool:
    """Returns True if a change alters the fingerprint."""
    before = fingerprint.of_folder(folder, **options)
    assert fingerprint.of_folder(folder, **options) == before
    change()
    return fingerprint.of_folder(folder, **options) != before


@pytest.mark.parametrize(
    "name",
    [
        "package/deep/helper.py",
        "vocabulary.txt",
        "settings.yaml",
        "package/native.so",
    ],
)
def test_files_that_a_module_may_read_count_by_content(folder, name):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    assert is_other(folder, lambda: file.write_text("trainer: 1"))
    assert is_other(folder, lambda: file.write_text("trainer: 2"))
    assert not is_other(folder, lambda: os.utime(file, (1, 1)))
    assert is_other(folder, lambda: file.rename(folder / "renamed.py"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".git/HEAD", "x"),
        (".vocabulary.txt.swp", "x"),
        ("__pycache__/model.cpython-310.pyc", "x"),
        ("environment/pyvenv.cfg", "x"),
        ("runs/mine/metadata.sqlite", "x"),
        ("explore.ipynb", "x"),
        ("README.md", "x"),
        ("events.out.tfevents.1795300000.host", "x"),
        ("pipeline.yaml", "name: a\nmodule: model.py\ndata: {csv: x}\ntrainer: {label: y}\n"),
        ("compiled.yaml", "deploymentSpec:\n  executors: {}\n"),
        ("report.html", f"<html>\n<head>\n{fingerprint.REPORT_MARK.decode()}\n"),
        ("compiled.json", '{"pipelineSpec": {"deploymentSpec": {}}}'),
    ],
)
def test_what_no_module_reads_does_not_count(folder, name, text):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)

    def write():
        file.write_text(text)
        if file.parent != folder:
            (file.parent / "other.py").write_text("")

    assert not is_other(folder, write)


def test_data_of_the_pipeline_does_not_count(folder):
    (folder / "data").mkdir()
    excluding = [folder / "data", folder / "table.csv", folder]
    assert not is_other(folder, lambda: (folder / "data" / "a.csv").write_text("x"), excluding=excluding)
    assert not is_other(folder, lambda: (folder / "table.csv").write_text("x"), excluding=excluding)
    assert is_other(folder, lambda: (folder / "words.txt").write_text("x"), excluding=excluding)
    (folder / "link").symlink_to(folder / "data")
    assert not is_other(folder, lambda: (folder / "data" / "b.csv").write_text("x"), excluding=excluding)


def test_runs_in_the_folder_itself_do_not_count(folder):
    def run():
        for name in ("artifacts", "logs", "serving"):
            (folder / name).mkdir()
            (folder / name / "result").write_text("x")
        (folder / "metadata.sqlite").write_text("x")

    assert not is_other(folder, run)
    assert is_other(folder, lambda: (folder / "words.txt").write_text("x"))
    (folder / "metadata.sqlite").unlink()
    assert is_other(folder, lambda: (folder / "logs" / "result").write_text("y")), "a folder of the user's"


def test_links_are_followed_once(folder, tmp_path):
    helpers = tmp_path / "helpers"
    helpers.mkdir()
    (helpers / "text.py").write_text("")
    (folder / "helpers").symlink_to(helpers)
    (helpers / "loop").symlink_to(folder)
    (folder / "nowhere").symlink_to(tmp_path / "missing")
    assert is_other(folder, lambda: (helpers / "text.py").write_text("x = 1\n"))
    (tmp_path / "linked.txt").write_text("a")
    (folder / "linked.txt").symlink_to(tmp_path / "linked.txt")
    assert is_other(folder, lambda: (tmp_path / "linked.txt").write_text("b"))


def test_installed_module_counts_with_its_whole_package(tmp_path):
    place = tmp_path / "site-packages"
    deep = place / "package" / "models"
    deep.mkdir(parents=True)
    for file in (place / "package" / "__init__.py", deep / "__init__.py", deep / "digits.py", place / "single.py"):
        file.touch()

    def digests() -> list[str]:
        modules = [
            ("package", place / "package" / "__init__.py"),
            ("package.models", deep / "__init__.py"),
            ("package.models.digits", deep / "digits.py"),
        ]
        return [fingerprint.of_module(name, file) for name, file in modules]

    before, single = digests(), fingerprint.of_module("single", place / "single.py")
    assert len(set(before)) == 1
    (place / "package" / "layers.py").touch()
    assert len(set(digests() + before)) == 2
    assert fingerprint.of_module("single", place / "single.py") == single
    (place / "single.py").write_text("x = 1")
    assert fingerprint.of_module("single", place / "single.py") != single


def test_imports_are_followed(tmp_path):
    files = {
        "source.py": "import tensorflow, names\nfrom package import parts\n",
        "names.py": "from package.deep.more import THING\nimport source\n",
        "package/__init__.py": "",
        "package/parts.py": "from .deep import more\n",
        "package/deep/__init__.py": "",
        "package/deep/more.py": "from .. import last\n",
        "package/last.py": "broken(\n",
        "model.py": "import names\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in files:
        before = fingerprint.of_imports("source", tmp_path / "source.py")
        (tmp_path / name).write_text(files[name] + "#")
        assert (fingerprint.of_imports("source", tmp_path / "source.py") == before) == (name == "model.py"), name
    inside = fingerprint.of_imports("package.parts", tmp_path / "package" / "parts.py")
    (tmp_path / "package" / "last.py").write_text("")
    assert fingerprint.of_imports("package.parts", tmp_path / "package" / "parts.py") != inside


def test_of_an_installed_module_only_its_own_package_counts(tmp_path):
    installed = tmp_path / "site-packages"
    for name, text in {
        "source/reader.py": "import big, source.names\n",
        "source/names.py": "",
        "big/__init__.py": "",
    }.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    before = fingerprint.of_imports("source.reader", installed / "source" / "reader.py")
    (installed / "big" / "__init__.py").write_text("#")
    assert fingerprint.of_imports("source.reader", installed / "source" / "reader.py") == before
    (installed / "source" / "names.py").write_text("#")
    assert fingerprint.of_imports("source.reader", installed / "source" / "reader.py") != before


def test_environment_names_what_computes_results():
    text = fingerprint.environment()
    assert f"tensorflow {metadata.version('tensorflow')}" in text
    assert text.startswith("python 3.")

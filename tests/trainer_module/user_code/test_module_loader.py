import sys
from pathlib import Path

import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.user_code import module_loader


@pytest.fixture(autouse=True)
def _forget_imports():
    before, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.path[:] = path


def write(folder: Path, **files: str) -> UserModule:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return UserModule("own_model.build_model", (str(folder),))


def test_loads_a_function_and_what_lies_beside_it(tmp_path):
    loaded = module_loader.load(
        write(
            tmp_path, own_model="from own_helper import ANSWER\ndef build_model(c): return ANSWER", own_helper="ANSWER = 42"
        )
    )
    assert loaded(None) == 42


def test_module_that_does_not_import_is_named_with_its_error(tmp_path):
    with pytest.raises(
        ConfigurationError,
        match=r"'own_model' does not import: /.*/helper_of_it.py, line 2: ModuleNotFoundError: No module named 'nothere'",
    ):
        module_loader.load(write(tmp_path, own_model="import helper_of_it", helper_of_it="\nimport nothere"))


def test_a_module_with_the_name_of_another_one_is_named_where_its_function_is_missing(tmp_path):
    (tmp_path / "yaml.py").write_text("def build_model(context): ...")
    with pytest.raises(ConfigurationError, match="module: <module 'yaml' from '/.*/yaml/__init__.py'> has no function"):
        module_loader.load(UserModule("yaml.build_model", (str(tmp_path),)))


@pytest.mark.parametrize("call", ["sys.exit(0)", "sys.exit()", "raise SystemExit(0)", "exit(0)"])
def test_module_that_exits_has_not_been_imported(tmp_path, call):
    with pytest.raises(
        ConfigurationError, match=r"'own_model' does not import: sys.exit\(0?\) was called in .*own_model.py, line 2"
    ):
        module_loader.load(write(tmp_path, own_model=f"import sys\n{call}"))


def test_missing_function_is_named_with_its_file(tmp_path):
    with pytest.raises(ConfigurationError, match="'own_model' from '/.*own_model.py'> has no function 'build_model'"):
        module_loader.load(write(tmp_path, own_model="def build(c): pass"))


def test_names_are_found_without_running_the_file(tmp_path):
    file = tmp_path / "m.py"
    file.write_text(
        "import a.b as c\nfrom d import *\nx = y = 1\nz: int = 2\nclass K: ...\ndef f(): ...\nraise SystemExit\n"
    )
    assert module_loader.top_level_names(file).keys() == {"c", "*", "x", "y", "z", "K", "f"}


def test_syntax_error_has_its_line(tmp_path):
    file = tmp_path / "m.py"
    file.write_text("x = 1\ndef f(:\n")
    with pytest.raises(ConfigurationError, match="m.py, line 2"):
        module_loader.top_level_names(file)


BOTH = "def run_fn(fn_args): ...\n"


@pytest.mark.parametrize(
    ("code", "function"),
    [
        ("def build_model(context): ...", "build_model"),
        ("from m import build_model", "build_model"),
        ("from m import *", "build_model"),
        (BOTH, "run_fn"),
        (f"{BOTH}from m import *", "run_fn"),
        (f"{BOTH}from m import build_model", "run_fn"),
        (f"{BOTH}def build_model(context): ...", "build_model"),
        (f"{BOTH}def build_model(context, units=3, *rest, more=None): ...", "build_model"),
        (f"{BOTH}build_model = lambda context: None", "build_model"),
        (f"{BOTH}build_model = partial(build, 3)", "build_model"),
        (f"{BOTH}def build_model(*contexts): ...", "build_model"),
        (f"{BOTH}def build_model(units, rate): ...", "run_fn"),
        (f"{BOTH}def build_model(): ...", "run_fn"),
        (f"{BOTH}def build_model(units, *, rate): ...", "run_fn"),
        (f"{BOTH}def build_model(context): ...\nfrom m import build_model", "run_fn"),
    ],
)
def test_which_function_trains(tmp_path, code, function):
    file = tmp_path / "m.py"
    file.write_text(code)
    assert module_loader.training_function(module_loader.top_level_names(file), "m.py") == function


def test_module_that_cannot_train_is_refused():
    with pytest.raises(ConfigurationError, match=r"m.py has neither build_model\(context\).* nor TFX's run_fn"):
        module_loader.training_function({"preprocessing_fn": None}, "m.py")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Makes packages that would exit if they were imported."""
    files = ("package/__init__.py", "package/models/__init__.py", "package/models/digits.py", "space/inner/model.py")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import sys\nprint('imported')\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("package", "package/__init__.py"),
        ("package.models", "package/models/__init__.py"),
        ("package.models.digits", "package/models/digits.py"),
        ("space.inner.model", "space/inner/model.py"),
        ("package.models.nothere", None),
        ("package.nothere.digits", None),
        ("package.models.digits.inside", None),
        ("nothere.model", None),
        ("space", None),
        ("sys", None),
    ],
)
def test_installed_module_is_found_without_an_import(installed, capsys, name, file):
    assert module_loader.locate(name) == (file and installed / file)
    assert capsys.readouterr().out == ""

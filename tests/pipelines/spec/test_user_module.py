import sys
import types

import pytest

from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.pipeline import Data, Parameters, PipelineSpec, Train
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def module(tmp_path):
    (tmp_path / "own_layers").mkdir()
    (tmp_path / "own_layers" / "att.py").write_text("SIZE = 3\n")
    (tmp_path / "own_entry.py").write_text("from own_layers.att import SIZE\ndef build_model(context): return SIZE\n")
    spec = PipelineSpec(
        name="mine",
        module=str(tmp_path / "own_entry.py"),
        data=Data(csv="x"),
        trainer=Train(label="y", parameters=Parameters(epochs=1)),
    )
    return user_module.find(spec)


def test_fingerprint_covers_what_the_module_may_import(module):
    before = module.fingerprint()
    assert module.fingerprint() == before
    (module.folder / "own_layers" / "att.py").write_text("SIZE = 4\n")
    changed = module.fingerprint()
    assert changed != before
    (module.folder / ".venv").mkdir()
    (module.folder / ".venv" / "other.py").write_text("")
    assert module.fingerprint() == changed, "environments are not what a module imports from beside it"


def test_imports_what_is_on_disk_now_and_leaves_the_rest_alone(module, monkeypatch):
    """In a notebook, modules may have changed since; `__main__` is the notebook."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(module.folder / "train.py"), raising=False)
    main, path = sys.modules["__main__"], list(sys.path)
    for size in (3, 4):
        (module.folder / "own_layers" / "att.py").write_text(f"SIZE = {size} \n" + "#" * size)
        with user_module.importable(module):
            import own_entry

            assert own_entry.build_model(None) == size
    assert sys.modules["__main__"] is main
    assert sys.path == path


@pytest.mark.parametrize("name", ["installed", "tfx_distribute.own"])
def test_packages_are_imported_once(module, monkeypatch, name):
    """TensorFlow cannot be imported twice. A project may contain its environment."""
    loaded = types.ModuleType(name)
    folder = ".venv/lib/python3.12/site-packages" if name == "installed" else "src"
    loaded.__file__ = str(module.folder / folder / "installed.py")
    monkeypatch.setitem(sys.modules, name, loaded)
    with user_module.importable(module):
        assert sys.modules[name] is loaded


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".x", "'.x' is not the name of a module; for a file, write its path with .py"),
        ("__main__", "'__main__' is not the name of a module"),
        ("not_installed", "'not_installed' is not installed; for a file"),
        ("_ctypes", ".so is not Python source"),
        ("json.py", "json.py cannot be imported under that name; rename the file"),
        ("nothere.py", "nothere.py: No such file"),
        ("binary.py", "binary.py"),
        ("syntax.py", "syntax.py, line 1"),
    ],
)
def test_modules_that_are_refused(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary.py").write_bytes(b"\x80\x81\n")
    (tmp_path / "syntax.py").write_bytes(b"def (:\n")
    spec = PipelineSpec(name="mine", module=name, data=Data(csv="x"), trainer=Train(label="y"))
    with pytest.raises(ConfigurationError) as refusal:
        user_module.find(spec)
    assert message in str(refusal.value)


def test_settings_of_a_run_fn(tmp_path):
    (tmp_path / "own.py").write_text("def run_fn(fn_args): ...\n")

    def find(**parameters: object) -> str:
        train = Train(parameters=Parameters(train_steps=1, **parameters))
        spec = PipelineSpec(name="mine", module=str(tmp_path / "own.py"), data=Data(csv="x"), trainer=train)
        return user_module.find(spec).train

    assert find(max_restarts=1) == "run_fn", "a setting of the surrounding processes"
    with pytest.raises(
        ConfigurationError, match="^trainer.parameters.save_checkpoints_secs: a run_fn decides on it by itself"
    ):
        find(save_checkpoints_secs=5)
    with pytest.raises(ConfigurationError, match="a run_fn cannot train under 'model_parallel'"):
        find(strategy="model_parallel")

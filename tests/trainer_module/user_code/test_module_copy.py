import importlib
import inspect
import linecache
import os
import sys
import traceback

import pytest

from tfx_distribute.trainer_module.user_code import module_copy

ENTRY = """\
def build():
    from copied_parts import size
    return size.value()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A module and a package next to it, which can be imported."""
    folder = tmp_path / "project"
    (folder / "copied_parts").mkdir(parents=True)
    (folder / "copied_entry.py").write_text(ENTRY)
    (folder / "copied_parts" / "size.py").write_text("def value():\n    return 1 // 1\n")
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_what_is_edited_later_is_not_imported(folder, tmp_path):
    """Not even by functions that import only when they are called."""
    hooks, path = list(sys.path_hooks), str(folder / "copied_entry.py")
    with module_copy.used(folder, tmp_path / "copy"):
        (folder / "copied_entry.py").write_text("# edited\n" + ENTRY.replace("size.value()", "2"))
        (folder / "copied_parts" / "size.py").write_text("def value():\n    return 3\n")
        entry = importlib.import_module("copied_entry")
        assert entry.build() == 1
        assert (entry.__file__, entry.build.__code__.co_filename) == (path, path), "the user's own"
        assert inspect.getsource(entry.build) == ENTRY, "which AutoGraph converts"
    assert sys.path_hooks == hooks
    assert module_copy.VARIABLE not in os.environ
    assert path not in linecache.cache
    for name in ("copied_entry", "copied_parts.size", "copied_parts"):
        del sys.modules[name]
    assert importlib.import_module("copied_entry").build() == 2, "in the next run"


def test_tracebacks_show_what_has_run(folder, tmp_path):
    (folder / "copied_parts" / "size.py").write_text("def value():\n    return 1 // 0\n")
    with module_copy.used(folder, tmp_path / "copy"):
        entry = importlib.import_module("copied_entry")
        (folder / "copied_parts" / "size.py").write_text("\n\n\n")
        with pytest.raises(ZeroDivisionError) as error:
            entry.build()
        frame = traceback.extract_tb(error.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno, frame.line) == (str(folder / "copied_parts" / "size.py"), 2, "return 1 // 0")

"""Imports the user's module from a copy that was made when the run began.

Processes of a run import the module at different times: later ones, and those that take
the place of a lost one, would otherwise import what was edited for the next run. Only
Python files are copied. A module still has its own path, in `__file__` and in
tracebacks, and finds its data next to it.
"""

import contextlib
import functools
import linecache
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from typing_extensions import override

from tfx_distribute.trainer_module.user_code import fingerprint

VARIABLE = "TFX_DISTRIBUTE_MODULE_COPY"  # the module's folder and its copy, as in PYTHONPATH


def write(folder: Path, copy: Path) -> dict[str, str]:
    """Copies the Python files of a folder into a new one.

    Returns the environment variable with which processes import the copy.
    """
    for file in list(fingerprint.python_files(folder)):  # the copy may be in a folder of it
        target = copy / file.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # a broken link: the module cannot import it either
            shutil.copyfile(file, target)
    return {VARIABLE: os.pathsep.join((str(folder), str(copy)))}


def environment() -> dict[str, str]:
    """Returns the environment variable of this process, if it has it, for another."""
    return {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}


def use() -> None:
    """Makes this process import the copy, if the environment variable names one."""
    if VARIABLE in os.environ and (hook := _hook(os.environ[VARIABLE])) not in sys.path_hooks:
        sys.path_hooks.insert(0, hook)
        sys.path_importer_cache.clear()


@contextlib.contextmanager
def used(folder: Path, copy: Path) -> Iterator[None]:
    """Copies a module, and makes this process and its children import the copy."""
    os.environ.update(write(folder, copy))
    try:
        use()
        yield
    finally:
        hook = _hook(os.environ.pop(VARIABLE))
        sys.path_hooks.remove(hook)
        sys.path_importer_cache.clear()
        without_time = [file for file, entry in linecache.cache.items() if len(entry) > 1 and entry[1] is None]
        for file in without_time:
            if Path(file).is_relative_to(folder):
                del linecache.cache[file]


@functools.cache
def _hook(value: str) -> Any:
    """Returns the path hook for a value of the variable, always the same one."""
    folder, _, copy = value.partition(os.pathsep)

    class Loader(SourceFileLoader):
        """Loads a module's copy under the path of the module."""

        @override
        def path_stats(self, path: Any) -> Any:
            raise OSError  # so that no bytecode is read: it may be of a later version

        @override
        def get_data(self, path: Any) -> bytes:
            copied = os.path.join(copy, os.path.relpath(path, folder))
            return super().get_data(copied if os.path.isfile(copied) else path)

        @override
        def source_to_code(self, data: Any, path: Any, **options: Any) -> Any:  # type: ignore[override]
            # AutoGraph and tracebacks read a function's source there. Without a time,
            # it is never compared with the file.
            lines = decode_source(data).splitlines(keepends=True)
            linecache.cache[path] = (len(data), None, lines, path)
            return super().source_to_code(data, path, **options)

    def find(path: str) -> FileFinder:
        below = Path(path)
        if not below.is_relative_to(folder) or not fingerprint.PACKAGE_FOLDERS.isdisjoint(below.parts):
            raise ImportError
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (Loader, SOURCE_SUFFIXES))

    return find

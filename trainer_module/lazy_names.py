"""Loads the names that a package exports when they are first used."""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def export(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Makes `__all__`, `__getattr__` and `__dir__` of a package's `__init__.py`.

    The names are those that the file imports in its blocks of `if TYPE_CHECKING`, as
    type checkers and editors see them.
    """
    tree = ast.parse(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: str(node.module) for node in imports for alias in node.names}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return sorted(modules), load, list_names

"""Loads the names that a package exports when they are first used."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def export(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Makes `__all__`, `__getattr__` and `__dir__` of a package's `__init__.py`.

    Type checkers and editors do not follow them: import each name as itself in a block
    of `if TYPE_CHECKING`, too.

    ```python
    names = {".pusher.component": ["Pusher"]}
    __all__, __getattr__, __dir__ = lazy_names.export(__name__, names)
    ```
    """
    modules = {name: module for module, exported in names.items() for name in exported}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name], package), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return sorted(modules), load, list_names

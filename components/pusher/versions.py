"""Tells which version of a model a server loads. Imports nothing heavy."""

from collections.abc import Iterable

MAX_VERSION = 2**63 - 1  # TF Serving keeps versions in an int64
# Property of a model in ML Metadata: 1 if a rollback has gone back to one before it.
WITHDRAWN = "withdrawn"


def find_newest(names: Iterable[str]) -> str | None:
    """Returns the version that servers load from a folder; None if there is none."""
    return max(find_all(names), key=int, default=None)


def find_all(names: Iterable[str]) -> list[str]:
    """Returns the versions among the names of a folder's entries, the oldest first."""
    return sorted((name for name in names if name.isascii() and name.isdigit() and int(name) <= MAX_VERSION), key=int)

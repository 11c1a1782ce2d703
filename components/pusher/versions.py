"""Tells which version of a model a server loads. Imports nothing heavy."""

from collections.abc import Iterable

MAX_VERSION = 2**63 - 1  # TF Serving keeps versions in an int64


def find_newest(names: Iterable[str]) -> str | None:
    """Returns the version that servers load from a folder; None if there is none.

    ```python
    find_newest(["1795319702", "7", ".pushing-5"])  # "1795319702"
    ```

    Args:
      names: Names of the folder's entries; names that are not versions are ignored.
    """
    versions = (name for name in names if name.isascii() and name.isdigit() and int(name) <= MAX_VERSION)
    return max(versions, key=int, default=None)

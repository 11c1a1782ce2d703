"""Lists and opens files, local or at an address.

TFX and Beam are imported for an address only, so that `validate` can use this.
"""

import os
from typing import Any


def list_names(folder: str) -> list[str]:
    """Returns the names in a folder; none if it is not a folder."""
    if not is_folder(folder):
        return []
    if "://" not in folder:
        return os.listdir(folder)
    return [name.rstrip("/") for name in _fileio().listdir(folder)]  # object storage marks folders with a slash


def is_folder(path: str) -> bool:
    """Returns True if there is a folder at a path."""
    return bool(_fileio().isdir(path)) if "://" in path else os.path.isdir(path)


def exists(path: str) -> bool:
    """Returns True if there is a file or folder at a path."""
    return bool(_fileio().exists(path)) if "://" in path else os.path.exists(path)


def open_file(file: str) -> Any:
    """Opens a file for reading bytes."""
    if "://" not in file:
        return open(file, "rb")
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    # Opened with Beam, since TensorFlow drops carriage returns at the ends of lines.
    return FileSystems.open(file, compression_type=CompressionTypes.UNCOMPRESSED)


def _fileio() -> Any:
    from tfx.dsl.io import fileio

    return fileio

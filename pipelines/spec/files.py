"""Resolves paths and reads small files that a person names, with an error for each thing that can be wrong with them."""

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tfx_distribute.trainer_module.errors import ConfigurationError

KIB, MIB = 1 << 10, 1 << 20

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class FileError(ConfigurationError):
    """A path cannot be resolved, or a file cannot be read; the message names it and the reason."""


def resolve(path: str | Path, base: str | Path = ".") -> Path:
    """Makes a path absolute, with `~` and symbolic links resolved.

    Args:
      path: The path.
      base: Folder that a relative path starts from.

    Raises:
      FileError: The path is empty, has a NUL byte, is not in UTF-8, is too long, follows links in a circle, or starts from a
        home folder or a working folder that does not exist.
    """
    if not str(path):
        raise FileError("the path is empty")
    try:
        resolved = (Path(base) / Path(path).expanduser()).resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            resolved.lstat()
        if _is_unicode(str(resolved)):
            return resolved
        reason = "has characters that TensorFlow would read in another encoding; rename it, or set PYTHONUTF8=1"
    except RuntimeError as error:  # of expanduser(), and of resolve() for a loop
        reason = "follows symbolic links in a circle" if "loop" in str(error) else "there is no such home folder"
    except ValueError:
        reason = "has a NUL byte"
    except FileNotFoundError:
        reason = "is relative, and the working folder does not exist any more; change to another one"
    except OSError as error:
        reason = str(error.strerror)
    raise FileError(f"{shorten(str(path))!r}: {reason}")


def _is_unicode(path: str) -> bool:
    """Returns whether Python, which decodes paths by its locale, has the same idea of one as UTF-8 has."""
    return path.isascii() or (sys.getfilesystemencoding() == "utf-8" and not re.search("[\ud800-\udfff]", path))


def read_bytes(path: str | Path, max_bytes: int) -> bytes:
    """Reads a regular file of a bounded size.

    Raises:
      FileError: It is not there, is not a regular file, cannot be read, or is larger than `max_bytes`.
    """
    with _regular_file(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _too_large(path, max_bytes)
    return content


def check_readable(path: str | Path, max_bytes: int) -> None:
    """Checks that `read_bytes` would read a file, without reading it.

    Raises:
      FileError: As for `read_bytes`.
    """
    with _regular_file(path) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise _too_large(path, max_bytes)


@contextlib.contextmanager
def _regular_file(path: str | Path) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer would otherwise block
        try:
            mode = os.fstat(descriptor).st_mode
            for is_kind, kind in _KINDS:
                if is_kind(mode):
                    raise FileError(f"{path}: is {kind}; name a file")
            with open(descriptor, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FileError(f"{shorten(str(path))}: {error.strerror}") from error


def _too_large(path: str | Path, max_bytes: int) -> FileError:
    return FileError(f"{path}: is larger than {max_bytes >> 10:,} KiB, the most that is read of such a file")


def read_text(path: str | Path, max_bytes: int) -> str:
    """Reads a regular file of a bounded size as UTF-8 text.

    Raises:
      FileError: As for `read_bytes`, or it is not UTF-8.
    """
    try:
        return read_bytes(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start})") from error


def shorten(text: str, most: int = 200) -> str:
    """Returns a text for a message: whole, or its beginning and its length."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"

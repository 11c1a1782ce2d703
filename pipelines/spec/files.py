"""Resolves paths and reads small files that the user names, with clear errors."""

import contextlib
import errno
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

_LOOP = "follows symbolic links in a circle"


class FileError(ConfigurationError):
    """A path cannot be resolved, or a file cannot be read.

    The message names the path and the reason.
    """


def resolve(path: str | Path, base: str | Path = ".") -> Path:
    """Makes a path absolute, with `~` and symbolic links resolved.

    Args:
      path: The path.
      base: Folder that a relative path starts from.

    Raises:
      FileError: The path is empty, has a NUL byte, is not in UTF-8, is too long,
        follows links in a circle, or starts from a home folder or a working folder that
        does not exist.
    """
    if not str(path):
        raise FileError("the path is empty")
    try:
        resolved = (Path(base) / Path(path).expanduser()).resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            resolved.stat()
        if _is_unicode(str(resolved)):
            return resolved
        reason = "has characters that TensorFlow would read in another encoding; rename it, or set PYTHONUTF8=1"
    except RuntimeError as error:  # raised by expanduser() and, up to Python 3.12, by resolve() for a loop
        reason = _LOOP if "loop" in str(error) else "there is no such home folder"
    except ValueError:
        reason = "has a NUL byte"
    except FileNotFoundError:
        reason = "is relative, and the working folder does not exist any more; change to another one"
    except OSError as error:
        reason = _LOOP if error.errno == errno.ELOOP else str(error.strerror)
    raise FileError(f"{shorten(str(path))!r}: {reason}")


def _is_unicode(path: str) -> bool:
    """Returns True if Python, which decodes paths by its locale, read this as UTF-8."""
    return path.isascii() or (sys.getfilesystemencoding() == "utf-8" and not re.search("[\ud800-\udfff]", path))


def read_bytes(path: str | Path, max_bytes: int) -> bytes:
    """Reads a regular file of at most `max_bytes` bytes.

    Raises:
      FileError: The file does not exist, is not a regular file, cannot be read, or is
        larger than `max_bytes`.
    """
    with _open_regular_file(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _make_size_error(path, max_bytes)
    return content


def check_readable(path: str | Path, max_bytes: int) -> None:
    """Checks that `read_bytes` would read a file, without reading it.

    Raises:
      FileError: As for `read_bytes`.
    """
    with _open_regular_file(path) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise _make_size_error(path, max_bytes)


@contextlib.contextmanager
def _open_regular_file(path: str | Path) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe without a writer would block
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


def _make_size_error(path: str | Path, max_bytes: int) -> FileError:
    return FileError(f"{path}: is larger than {max_bytes >> 10:,} KiB, the limit for such a file")


def read_text(path: str | Path, max_bytes: int) -> str:
    """Reads a regular file of at most `max_bytes` bytes as UTF-8 text.

    Raises:
      FileError: As for `read_bytes`, or the file is not UTF-8.
    """
    try:
        return read_bytes(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start})") from error


def shorten(text: str, max_length: int = 200) -> str:
    """Returns a text for a message: whole, or its beginning and its length."""
    return text if len(text) <= max_length else f"{text[:max_length]}... ({len(text):,} characters)"

"""Writes small documents atomically, and reads and removes them."""

import contextlib
import errno
import os
import socket
import tempfile
from collections.abc import Iterator

import tensorflow as tf

# Errors of file systems that do not support fsync.
_CANNOT_SYNC = (errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def write(path: str, text: str, durable: bool = False) -> None:
    """Writes a document to a temporary name, then renames it.

    No reader ever sees half of it. If it cannot be written, nothing stays under the
    temporary name. An existing file at `path`, which may be an address, is replaced.
    With `durable`, this returns when the document is on disk, so that it is whole even
    after a loss of power.
    """
    # Each process has a name of its own, on any machine: several may write at once.
    partial = f"{path}.{socket.gethostname()}-{os.getpid()}.partial"
    try:
        with tf.io.gfile.GFile(partial, "w") as file:
            file.write(text)
        if durable:
            sync(partial)
        tf.io.gfile.rename(partial, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(partial)
        raise
    if durable:
        sync(os.path.dirname(path) or ".")


def sync(path: str) -> None:
    """Waits until a local file, or the names in a local folder, are on disk.

    Does nothing for object storage, where each write is durable once it succeeds.
    """
    if "://" in path:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def read(path: str) -> str | None:
    """Returns the text of a document; None if there is none."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return bytes(file.read()).decode(errors="replace")  # the caller rejects a damaged one
    # FailedPreconditionError: a parent of the path is a file.
    except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError):
        return None


@contextlib.contextmanager
def throwaway_folder() -> Iterator[str]:
    """Makes a temporary folder for files that are not kept, and removes it at the end.

    Yields the folder; if the disk is full, a path where no file can be created, so that
    the process can still take part in saves of the others.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfx-distribute-", ignore_cleanup_errors=True))
        except OSError:
            folder = f"{os.devnull}/discarded"
        yield folder


def remove(path: str) -> None:
    """Removes a document if it exists."""
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)

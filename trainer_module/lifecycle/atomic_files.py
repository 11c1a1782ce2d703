"""Small documents, written whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

import tensorflow as tf


def write(path: str, text: str) -> None:
    """Writes a document beside where it belongs, then puts it there: no reader finds half of it.

    Args:
      path: File or address; what is there is replaced.
      text: What to write.
    """
    with tf.io.gfile.GFile(f"{path}.partial", "w") as file:
        file.write(text)
    tf.io.gfile.rename(f"{path}.partial", path, overwrite=True)


def read(path: str) -> str | None:
    """The text of a document; None where there is none."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return bytes(file.read()).decode(errors="replace")  # what is damaged is its reader's to refuse
    except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError):  # the latter: a file lies where a folder should
        return None


def choose_temporary_folder() -> None:
    """Has Python choose its folder for temporary files again: the one that it uses may be full by now.

    To be called before TensorFlow traces functions, whose generated code it imports from such files.
    """
    tempfile.tempdir = None


@contextlib.contextmanager
def throwaway_folder() -> Iterator[str]:
    """Makes a temporary folder for a process whose files do not count, and removes it at the end.

    Yields:
      The folder; on a full disk, a path that takes no files, so that the process can still take part in what others save.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfx-distribute-", ignore_cleanup_errors=True))
        except OSError:
            folder = f"{os.devnull}/discarded"
        yield folder


def remove(path: str) -> None:
    """Removes a document, if it is there."""
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)

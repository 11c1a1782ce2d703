"""Tells outages of a storage of files, which pass, from other errors."""

import errno
import os
import traceback
from collections.abc import Iterator

import tensorflow as tf

_OUTAGES = (tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.UnavailableError)
_NETWORK_VOLUME_CODES = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH)
_STORAGE_MODULE = "tensorflow/python/lib/io/file_io.py"  # of tf.io.gfile
# In TensorFlow's messages about Google Cloud Storage, whose errors it calls aborted.
_STORAGE_WORDS = "retry attempts failed. The last failure:"
# TensorFlow has no type of its own for the codes above; and what opens a checkpoint
# raises errors of Python, with the same messages.
_OUTAGE_WORDS = (_STORAGE_WORDS, *map(os.strerror, _NETWORK_VOLUME_CODES))


def is_outage(error: BaseException) -> bool:
    """Returns True if an error, or what caused it, may be gone on another try.

    Errors of a storage that refuses, for instance for missing permissions, are none.

    Args:
      error: The error that ended this process's training. If it may also be the loss
        of another process, ask `peer_loss` first.
    """
    return any(_may_pass(cause) for cause in _causes(error))


def is_of_storage(error: BaseException) -> bool:
    """Returns True if the storage of files raised the error."""
    return is_of_object_storage(error) or any(is_storage_module(file) for file in files_passed(error)[-1:])


def is_of_object_storage(error: BaseException) -> bool:
    """Returns True if Google Cloud Storage raised the error, or one of its causes."""
    return any(_STORAGE_WORDS in str(cause) for cause in _causes(error))


def is_storage_module(file: str) -> bool:
    """Returns True for the file that has the code of `tf.io.gfile`."""
    return file.endswith(_STORAGE_MODULE)


def files_passed(error: BaseException) -> list[str]:
    """Returns the files of code that an error has passed; the last one raised it."""
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()  # `raise error from error` makes an error its own cause
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _NETWORK_VOLUME_CODES
    if isinstance(error, tf.errors.OpError | RuntimeError | ValueError):
        return isinstance(error, _OUTAGES) or any(words in str(error) for words in _OUTAGE_WORDS)
    return False

"""Uses storage that may not answer for a while.

Cloud Storage does that, and it may refuse an account whose roles have just changed.
"""

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf
from absl import logging

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import retry

ERRORS = (OSError, tf.errors.OpError)

T = TypeVar("T")


def call(path: str, request: Callable[[], T]) -> T:
    """Calls `request`, which uses a file, and returns its result.

    If the file has an address, the call is repeated while the storage fails.

    Raises:
      NoAnswerError: The storage has failed for `timeouts.STORAGE_SECONDS`.
    """
    if "://" not in path:
        return request()
    return retry.call_with_retries(request, "the storage", lambda error: isinstance(error, ERRORS), timeouts.STORAGE_SECONDS)


def discard(path: str) -> None:
    """Removes a file or folder that is not needed; only warns if it cannot be removed.

    Processes that are being stopped may still hold files open on a shared file system.
    """
    try:
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        elif tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)
    except ERRORS as error:
        logging.warning("%s is not needed any more and could not be removed: %s", path, error)

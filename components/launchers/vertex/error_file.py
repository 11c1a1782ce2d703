"""Reads the file in which a training process reports that it failed for good.

The file is in Cloud Storage, which may not answer for a while, or may refuse an account
whose roles have just changed. That says nothing about the training, which goes on.
"""

import time

from absl import logging

from tfx_distribute.components.launchers import storage
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.lifecycle import atomic_files
from tfx_distribute.trainer_module.lifecycle.failure_report import Failure

PAUSE_SECONDS = 20.0  # before the next look after an error; then twice as long, and so on
MAX_PAUSE_SECONDS = 300.0


class ErrorFile:
    """The error file of a training.

    Args:
      path: Its path or address.
    """

    def __init__(self, path: str):
        self._path = path
        self._pause = 0.0  # after the last error; 0 if there was none
        self._next_look = 0.0

    def look(self) -> Failure | None:
        """Returns the final failure that a process reported, if it can be read now.

        After an error of the storage, the next looks are skipped for a growing time.
        """
        if time.monotonic() < self._next_look:
            return None
        try:
            failure = self._read()
        except storage.ERRORS as error:
            if not self._pause:
                logging.warning("cannot read %s, training goes on: %s", self._path, error)
            self._pause = min(2 * self._pause or PAUSE_SECONDS, MAX_PAUSE_SECONDS)
            self._next_look = time.monotonic() + self._pause
            return None
        self._pause = 0.0
        return failure

    def read(self) -> Failure | None:
        """Returns the final failure that a process reported, for a job that has ended.

        Reads repeatedly while the storage does not answer. If it does not in time,
        nothing is known of a failure.
        """
        try:
            return storage.call_with_retries(self._read)
        except TrainingError as error:
            logging.warning("cannot read %s: %s", self._path, error)
            return None

    def remove(self) -> None:
        """Removes the file of an earlier job, which would end the next one.

        Raises:
          TrainingError: The storage has not allowed it for `storage.TIMEOUT_SECONDS`.
        """
        try:
            storage.call_with_retries(lambda: atomic_files.remove(self._path))
        except TrainingError as error:
            raise TrainingError(
                f"cannot remove {self._path}: {error}; give the service account of this step roles/storage.objectUser on "
                "the bucket (`tfx-distribute manifests --target vertex PIPELINE` prints the command)"
            ) from error

    def _read(self) -> Failure | None:
        failure = Failure.read(self._path)
        return failure if failure and failure.final else None

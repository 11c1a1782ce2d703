"""Passes the reason of a training process's failure to its launcher in a file."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass

import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.job.cluster import ERROR_FILE_VARIABLE


@dataclass(frozen=True)
class Failure:
    """A process's failure.

    If `expected`, the message is complete without a traceback. If `final`, another try
    would fail too.
    """

    message: str
    expected: bool
    final: bool = True

    def report(self) -> None:
        """Writes the failure to the file that the launcher of this process has named.

        A failure that cannot be written is in the log only.
        """
        path = os.environ.get(ERROR_FILE_VARIABLE)
        if path:
            with contextlib.suppress(OSError, tf.errors.OpError):
                self.write(path)

    def write(self, path: str) -> None:
        """Writes the failure, unless the file has a final one already.

        Several processes may share the file: the first final failure stays.
        """
        previous = Failure.read(path)
        if previous is None or not previous.final:
            atomic_files.write(path, json.dumps(asdict(self)))

    @staticmethod
    def read(path: str) -> "Failure | None":
        """Returns the failure in a file; None if there is none or it is unreadable."""
        try:
            return Failure(**json.loads(atomic_files.read(path) or ""))
        except (ValueError, TypeError):
            return None

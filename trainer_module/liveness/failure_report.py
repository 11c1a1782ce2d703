"""Passes the reason of a training process's failure to its launcher in a file."""

import json
from dataclasses import asdict, dataclass

from tfx_distribute.trainer_module import atomic_files


@dataclass(frozen=True)
class Failure:
    """A process's failure.

    If `expected`, the message is complete without a traceback. If `final`, another try
    would fail too.
    """

    message: str
    expected: bool
    final: bool = True

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

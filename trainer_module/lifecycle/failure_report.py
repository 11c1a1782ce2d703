"""Why a training process failed, as it says itself in a file for its launcher."""

import json
from dataclasses import asdict, dataclass

from tfx_distribute.trainer_module.lifecycle import atomic_files

ERROR_FILE = "TFX_DISTRIBUTE_ERROR"  # environment variable: where a failing process says why; unset: nowhere


@dataclass(frozen=True)
class Failure:
    """What a process says.

    Attributes:
      message: Why it failed.
      expected: Whether the message is meant for people as it is.
      final: Whether another try would fail too.
    """

    message: str
    expected: bool
    final: bool = True

    def write(self, path: str) -> None:
        """Writes it; where several processes share the file, the first that is final stays."""
        told = Failure.read(path)
        if told is None or not told.final:
            atomic_files.write(path, json.dumps(asdict(self)))

    @staticmethod
    def read(path: str) -> "Failure | None":
        """What is there; None where nothing is, or nothing that can be read."""
        try:
            return Failure(**json.loads(atomic_files.read(path) or ""))
        except (ValueError, TypeError):
            return None

"""Reads the training step of a saved state, without the code that restores it."""

import json
import os
from dataclasses import dataclass
from typing import Any

from tfx_distribute.trainer_module.errors import TrainingError

STATE_FILE = "state.json"  # the document that makes a saved state the one to resume from
BEST_FILE = "best.json"  # the document that names the weights of the best evaluation


def parse(text: str, path: str) -> dict[str, Any]:
    """Returns the document of a saved state.

    Raises TrainingError if it is cut off, for instance because a disk was full.
    """
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise TrainingError(
            f"the saved state cannot be read: {path} is cut off or damaged; restore the file from a backup, or remove the "
            f"folder {os.path.dirname(path)} to start from scratch"
        ) from error


@dataclass(frozen=True)
class SavedStep:
    """The training step of a saved state.

    Attributes:
      step: Training steps that were done; 0 if that is unknown.
      made_with: The settings that the state depends on, as JSON. Steps of states with
        different settings cannot be compared.
    """

    step: int = 0
    made_with: str = ""


def read(folder: str) -> SavedStep:
    """Returns the training step of the newest state in a folder.

    That may be a state of other settings, which a training keeps until it has saved.
    The step is 0 if no state is readable, or `folder` is empty.
    """
    # `plan` imports this module.
    import tensorflow as tf

    from tfx_distribute.trainer_module import atomic_files

    try:
        text = atomic_files.read(f"{folder}/{STATE_FILE}") if folder else None
        if not text:
            return SavedStep()
        document = json.loads(text)
        return SavedStep(int(document["position"]["step"]), json.dumps(document.get("made_with"), sort_keys=True))
    except (OSError, tf.errors.OpError, ValueError, KeyError, TypeError):
        return SavedStep()

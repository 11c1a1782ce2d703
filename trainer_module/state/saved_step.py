"""Reads the documents of saved states, without the code that restores them."""

import json
import os
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


def find(root: str, file: str) -> list[str]:
    """Returns the paths of a document for each of the settings of a run."""
    # `plan` imports this module.
    import tensorflow as tf

    names = tf.io.gfile.listdir(root) if tf.io.gfile.exists(root) else ()
    paths = [f"{root}/{name.rstrip('/')}/{file}" for name in names]
    return [path for path in paths if tf.io.gfile.exists(path)]


def read(root: str) -> int:
    """Returns the training steps of the states of a run, of all settings together.

    The sum grows when training saves a later state. It is 0 if a state is not readable,
    or `root` is empty.
    """
    import tensorflow as tf

    from tfx_distribute.trainer_module import atomic_files

    try:
        texts = [atomic_files.read(path) for path in find(root, STATE_FILE)] if root else []
        return sum(int(json.loads(text or "")["position"]["step"]) for text in texts)
    except (OSError, tf.errors.OpError, ValueError, KeyError, TypeError):
        return 0

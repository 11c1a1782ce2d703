"""Reads the training step of a saved state, without the code that restores it."""

import json

import tensorflow as tf

from tfx_distribute.trainer_module.lifecycle import atomic_files

STATE_FILE = "state.json"  # the document that makes a saved state the one to resume from


def read(folder: str) -> int:
    """Returns the training step of the newest state in a folder; 0 if none is readable.

    Args:
      folder: Path or address of the folder of states; empty if there is none.
    """
    try:
        text = atomic_files.read(f"{folder}/{STATE_FILE}") if folder else None
        return int(json.loads(text)["position"]["step"]) if text else 0
    except (OSError, tf.errors.OpError, ValueError, KeyError, TypeError):
        return 0

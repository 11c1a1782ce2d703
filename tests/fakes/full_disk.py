"""Replaces functions that write files by one that finds the disk full."""

from typing import NoReturn

import tensorflow as tf


def no_space(*_: object, **__: object) -> NoReturn:
    raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

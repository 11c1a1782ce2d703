"""A stand-in for functions that write files: there is no space for them."""

from typing import NoReturn

import tensorflow as tf


def no_space(*_: object, **__: object) -> NoReturn:
    raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

"""Keeps Python's garbage collector from looking through modules again and again.

TensorFlow, Beam and TFX make about a million objects that live as long as their
process. While they are imported, and whenever the number of objects has grown by a
quarter later, the collector looks through all of them.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Pauses automatic collection in the block; later collections skip old objects.

    For imports at the start of a process of ours: objects that exist when the block
    ends are not collected later, unless their count of references falls to zero. In
    somebody else's process, such as a notebook, that would include its own objects.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

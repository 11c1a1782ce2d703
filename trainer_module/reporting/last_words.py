"""Lets parts of this process write their last lines before it ends at once.

`os._exit` skips everything that Python runs at its end. A thread that ends the process
that way calls `say` first.

    last_words.add(lambda phase, message: ...)
    last_words.say("failed", "made no progress for 600 s")
    os._exit(1)
"""

import contextlib
import threading
from collections.abc import Callable

from tfx_distribute.trainer_module import timeouts

_writers: list[Callable[[str, str], None]] = []


def add(writer: Callable[[str, str], None]) -> None:
    """Adds a function that `say` calls.

    Args:
      writer: Gets the phase, `failed` or `stopped`, and a message.
    """
    _writers.append(writer)


def remove(writer: Callable[[str, str], None]) -> None:
    """Removes a function that was added."""
    _writers.remove(writer)


def say(phase: str, message: str) -> None:
    """Calls the functions that were added, and returns in time.

    Args:
      phase: `failed`, or `stopped` if the process was asked to end.
      message: The reason.
    """

    def call_all() -> None:
        for writer in list(_writers):
            with contextlib.suppress(Exception):
                writer(phase, message)

    if _writers:
        thread = threading.Thread(target=call_all, daemon=True, name="last words")
        thread.start()
        thread.join(timeouts.LAST_WORDS_SECONDS)

"""Decides if, and how soon, a training that has failed is started again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from absl import logging

from tfx_distribute.components import timeouts


@dataclass(frozen=True)
class Failure:
    """The failure of a training.

    Attributes:
      message: Error message for people, with the last lines of the process.
      is_final: True if a restart would fail too.
      has_restarted: True if the platform has restarted it by itself, as often as it was
        allowed.
    """

    message: str
    is_final: bool = False
    has_restarted: bool = False


class Restarts:
    """Counts the restarts of a training since its saved state last advanced.

    Args:
      max_restarts: How many restarts in a row are allowed in which the training does
        not advance.
      read_step: Returns a number that grows when training saves a later state.
      tell: Called with the reason of each restart.
    """

    def __init__(
        self,
        max_restarts: int,
        read_step: Callable[[], int] = int,
        tell: Callable[[str], None] = lambda words: None,
    ):
        self._max, self._read_step, self._tell = max_restarts, read_step, tell
        self._used = 0
        self._furthest = read_step()

    def allow(self, failure: Failure) -> bool:
        """Counts a restart, and waits until it may be made.

        The first start comes at once, and so does each after a save of a later state.
        Others wait 1, 2, 4 ... seconds, `timeouts.RESTART_SECONDS` at most.

        Returns:
          False if the training must not be started again.
        """
        saved = self._read_step()
        if saved > self._furthest:
            self._furthest, self._used = saved, 0
        elif failure.has_restarted:
            self._used = self._max
        if self._used >= self._max:
            return False
        self._used += 1
        words = f"{failure.message.splitlines()[0]}; restart {self._used} of {self._max}"
        logging.warning("%s", words)
        self._tell(words)
        if self._used > 1:
            time.sleep(min(timeouts.RESTART_SECONDS, 2.0 ** (self._used - 2)))
        return True

    def describe(self, failure: Failure) -> str:
        """Describes the last failure, and why the training is not started again."""
        if failure.is_final or not self._max:
            return failure.message
        return f"{failure.message}\nAll {self._max} restarts (max_restarts) are used up"

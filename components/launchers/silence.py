"""Decides which of a cluster's processes have given no sign of life for too long."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class _Heard:
    sign: int
    at: float
    silent: float = 0.0


class SilenceMonitor:
    """Tells a process that hangs from processes that were all suspended for a while.

    The silence of one process counts while another gives signs of life. Where none gives any, the machine may have been
    paused with all of them, and they may all go on: that is waited for longer.

    Args:
      one: Seconds of silence after which a process counts as hung while others live.
      everybody: Seconds of silence of all processes after which all count as hung.
    """

    def __init__(self, one: float, everybody: float):
        self._one, self._everybody = one, everybody
        self._heard: dict[str, _Heard] = {}
        self._now = 0.0
        self._all_silent = 0.0

    def hung(self, now: float, signs: Mapping[str, int]) -> list[str]:
        """Takes in the latest signs of life, and returns the names of the processes that hang.

        Args:
          now: Seconds by a `RunningClock`.
          signs: Name of each running process -> a number that changes with each of its signs of life.
        """
        passed, self._now = now - self._now, now
        self._heard = {name: heard for name, heard in self._heard.items() if name in signs}
        for name, sign in signs.items():
            if name not in self._heard or self._heard[name].sign != sign:
                self._heard[name] = _Heard(sign, now)
        alive = {name for name, heard in self._heard.items() if now - heard.at < self._one / 2}
        if not alive:
            self._all_silent += passed
            return list(signs) if self._all_silent >= self._everybody else []
        self._all_silent = 0.0
        for name, heard in self._heard.items():
            if heard.at < now and alive - {name}:
                heard.silent += passed
        return [name for name, heard in self._heard.items() if heard.silent >= self._one]

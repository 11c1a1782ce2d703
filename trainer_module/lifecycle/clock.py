"""Measures how long this process has been running, leaving out the time in which it was suspended."""

import time


class RunningClock:
    """Counts seconds in which this process could run.

    A suspended process (SIGSTOP, a frozen cgroup, a paused virtual machine) sees the monotonic clock jump when it wakes
    up. Timeouts that wait for another process use this clock, so that the jump is not taken for silence of the other.

    Args:
      longest_gap: Seconds that one reading adds at most. Read the clock more often than this.
    """

    def __init__(self, longest_gap: float = 2.0):
        self._longest_gap = longest_gap
        self._last = time.monotonic()
        self._total = 0.0

    def seconds(self) -> float:
        """Returns the seconds counted since the clock was made."""
        now = time.monotonic()
        self._total += min(now - self._last, self._longest_gap)
        self._last = now
        return self._total

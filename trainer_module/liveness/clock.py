"""Measures how long this process has been running, not counting suspension."""

import time


class RunningClock:
    """Counts the seconds in which this process could run.

    A process that was suspended (SIGSTOP, a frozen cgroup, a paused virtual machine)
    sees the monotonic clock jump when it wakes up. Timeouts for another process use
    this clock, so that the jump does not look like silence of the other process. One
    reading adds at most `longest_gap` seconds: read the clock more often than that.
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

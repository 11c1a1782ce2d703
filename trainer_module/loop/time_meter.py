"""Measures how a training process spends its time, by activity."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

# Reading them takes milliseconds, with files for each of a hundred threads.
COUNTER_SECONDS = 2.0


class TimeMeter:
    """Adds up the seconds of each activity of the main thread.

    The seconds of all activities together are those since the meter was made. Blocks of
    `spending` may be nested; a second counts for the innermost one.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._before_block: dict[str, float] = {}  # seconds of an activity when its latest block began
        self._activity, self._since = "start", time.monotonic()
        self._counters_before = self._counters = read_counters()
        self._counters_read_at = time.monotonic()

    def begin_training(self) -> None:
        """Ends the activity `start`; from now on, time outside of blocks is `other`."""
        self._enter("other")

    def seconds(self) -> dict[str, float]:
        """Returns the seconds by activity until now."""
        self._enter(self._activity)
        return dict(self._seconds)

    def counters(self) -> dict[str, float]:
        """Returns the counters of this process and its machine over that time.

        They may be `COUNTER_SECONDS` old.
        """
        if time.monotonic() - self._counters_read_at >= COUNTER_SECONDS:
            self._counters, self._counters_read_at = read_counters(), time.monotonic()
        before = self._counters_before
        return {name: value - before[name] for name, value in self._counters.items() if name in before}

    @contextlib.contextmanager
    def spending(self, activity: str) -> Iterator[None]:
        """Counts the time of the block for an activity."""
        outer = self._enter(activity)
        self._before_block[activity] = self._seconds.get(activity, 0.0)
        try:
            yield
        finally:
            self._enter(outer)

    def move(self, source: str, target: str, seconds: float) -> None:
        """Counts seconds for `target` that were counted for `source`.

        Never moves more than the latest block of `source` has taken: `seconds` may be
        an estimate, or the difference of two times of day between which the clock was
        set.
        """
        available = self._seconds.get(source, 0.0) - self._before_block.get(source, 0.0)
        moved = max(0.0, min(seconds, available))
        self._seconds[source] = self._seconds.get(source, 0.0) - moved
        self._seconds[target] = self._seconds.get(target, 0.0) + moved

    def _enter(self, activity: str) -> str:
        now = time.monotonic()
        self._seconds[self._activity] = self._seconds.get(self._activity, 0.0) + now - self._since
        self._since, outer = now, self._activity
        self._activity = activity
        return outer


def read_counters() -> dict[str, float]:
    """Reads the counters of this process and its machine; see `time_use.COUNTERS`.

    Those that the system does not count are left out.
    """
    counters = {"cpu_seconds": time.process_time()}
    with contextlib.suppress(OSError, ValueError, IndexError):
        # Run-queue delay of each thread, in nanoseconds. Source:
        # https://docs.kernel.org/scheduler/sched-stats.html
        threads = Path("/proc/self/task").glob("*/schedstat")
        counters["cpu_wait_seconds"] = sum(_delay(thread) for thread in threads) / 1e9
    with contextlib.suppress(OSError, ValueError, IndexError):
        # Microseconds in which some task of the machine waited for I/O. Source:
        # https://docs.kernel.org/accounting/psi.html
        counters["disk_wait_seconds"] = int(Path("/proc/pressure/io").read_text().split("total=")[1].split()[0]) / 1e6
    with contextlib.suppress(OSError, ValueError, IndexError):
        counters["bytes_read"] = float(Path("/proc/self/io").read_text().split()[1])
    return counters


def _delay(schedstat: Path) -> int:
    try:
        return int(schedstat.read_text().split()[1])
    except FileNotFoundError:  # the thread has ended
        return 0

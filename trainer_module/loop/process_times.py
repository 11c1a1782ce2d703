"""Measures how the processes of a training spend their time, and tells all of them."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tfx_distribute.trainer_module.job.cluster import CHIEF, WORKER, ClusterTask, task_from_environment
from tfx_distribute.trainer_module.job.time_use import ACTIVITIES, COUNTERS, ProcessTime, TimeUse, summarize
from tfx_distribute.trainer_module.loop.peers import Peers

# Between two readings of counters: with files for each of a hundred threads, one takes
# milliseconds.
COUNTER_SECONDS = 2.0
# Between two times that they are gathered: after each short epoch would take too long.
GATHER_SECONDS = 2.0
# A process is named by what it did in such a time: in all of a long training, one that
# has become slow would not stand out for hours. The first time is judged as it goes on.
RECENT_SECONDS = 600.0
_ROLES = (CHIEF, WORKER)
_NAMES = (*ACTIVITIES, *COUNTERS)
_UNKNOWN = -1.0


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


class ProcessTimes:
    """Gathers the times of all processes that train in step, after epochs.

    Attributes:
      time_use: The times when they were last gathered.
      remark: A line about a process that was slow recently, if another one than before.
    """

    def __init__(self, meter: TimeMeter):
        self.time_use = TimeUse(())
        self.remark = ""
        self._meter, self._named = meter, ("", "")
        self._gathered_at = self._noted_at = time.monotonic()
        self._noted: dict[str, ProcessTime] = {}  # the times then

    @property
    def are_due(self) -> bool:
        """True if the last time was long enough ago."""
        return time.monotonic() - self._gathered_at >= GATHER_SECONDS

    def gather(self, peers: Peers) -> None:
        """Gathers the times; all processes of the cluster have to call it together."""
        self._gathered_at = time.monotonic()
        row = encode(task_from_environment(os.environ), self._meter.seconds(), self._meter.counters())
        self.time_use = summarize(decode(peers.gather(row)))
        processes = self.time_use.processes
        before = {each.task: self._noted.get(each.task, ProcessTime("", {})) for each in processes}
        recent = summarize([each.since(before[each.task].seconds, before[each.task].counters) for each in processes])
        is_full = self._gathered_at - self._noted_at >= RECENT_SECONDS
        is_judged = bool(recent.slowest) and (is_full or not self._noted)
        is_new = is_judged and (recent.slowest, recent.reason) != self._named
        self.remark = recent.describe() if is_new else ""
        if is_new:
            self._named = recent.slowest, recent.reason
        if is_full:
            self._noted, self._noted_at = {each.task: each for each in processes}, self._gathered_at


def encode(task: ClusterTask, seconds: dict[str, float], counters: dict[str, float]) -> list[float]:
    """Returns the time of a process as numbers, of which all processes have as many."""
    values = {**seconds, **counters}
    return [float(_ROLES.index(task.role)), float(task.index), *(values.get(name, _UNKNOWN) for name in _NAMES)]


def decode(rows: list[list[float]]) -> list[ProcessTime]:
    """Returns the times of the processes from numbers of their replicas."""
    processes = {}
    for role, index, *numbers in rows:
        known = {name: value for name, value in zip(_NAMES, numbers, strict=True) if value != _UNKNOWN}
        task = ClusterTask(_ROLES[int(role)], int(index))
        processes[task] = ProcessTime(
            task.file_name,
            {name: known[name] for name in ACTIVITIES if name in known},
            {name: known[name] for name in COUNTERS if name in known},
        )
    return [processes[task] for task in sorted(processes)]

"""Collects how the processes of a training spend their time, in all of them alike."""

import os
import time

from tfx_distribute.trainer_module.job.cluster import CHIEF, WORKER, ClusterTask, task_from_environment
from tfx_distribute.trainer_module.job.time_use import ACTIVITIES, COUNTERS, ProcessTime, TimeUse, summarize
from tfx_distribute.trainer_module.loop.peers import Peers
from tfx_distribute.trainer_module.loop.time_meter import TimeMeter

# Between two times that they are gathered: after each short epoch would take too long.
GATHER_SECONDS = 2.0
# A process is named by what it did in such a time: in all of a long training, one that
# has become slow would not stand out for hours. The first time is judged as it goes on.
RECENT_SECONDS = 600.0
_ROLES = (CHIEF, WORKER)
_NAMES = (*ACTIVITIES, *COUNTERS)
_UNKNOWN = -1.0


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

"""Collects how the processes of a training spend their time, in all of them alike."""

import os
import time
from collections import deque
from collections.abc import Sequence

import tensorflow as tf

from tfx_distribute.trainer_module.job.cluster import CHIEF, WORKER, ClusterTask, task_from_environment
from tfx_distribute.trainer_module.job.time_use import ACTIVITIES, COUNTERS, ProcessTime, TimeUse, summarize
from tfx_distribute.trainer_module.loop.step_runner import StepRunner
from tfx_distribute.trainer_module.loop.time_meter import TimeMeter

# Between two times that they are gathered: after each short epoch would take too long.
GATHER_SECONDS = 2.0
# A process is named while it trains by this time before: in all of a long training, one
# that has become slow would not stand out for hours.
RECENT_SECONDS = 600.0
_ROLES = (CHIEF, WORKER)
_NAMES = (*ACTIVITIES, *COUNTERS)
_UNKNOWN = -1.0


class RecentTimes:
    """Says how processes spent their time in the last `RECENT_SECONDS`.

    `now` is the time of a monotonic clock at which they had spent none.
    """

    def __init__(self, now: float):
        self._before: deque[tuple[float, dict[str, ProcessTime]]] = deque([(now, {})])

    def add(self, now: float, processes: Sequence[ProcessTime]) -> TimeUse:
        """Returns the recent time.

        `processes` have the time from their beginnings until `now`.
        """
        self._before.append((now, {process.task: process for process in processes}))
        while self._before[1][0] <= now - RECENT_SECONDS:
            self._before.popleft()
        nothing = ProcessTime("", {})
        before = {process.task: self._before[0][1].get(process.task, nothing) for process in processes}
        return summarize(
            [process.since(before[process.task].seconds, before[process.task].counters) for process in processes]
        )


class ProcessTimes:
    """Gathers the times of all processes that train in step, after epochs.

    The chief writes them for TensorBoard, as a run `processes/<task>` for each process:
    the share of each activity since the last time. `folder` is TensorBoard's log
    folder; None in a process that writes none.

    Attributes:
      time_use: The times when they were last gathered.
      remark: A line about a process that was slow recently, if it is not the one of the
        last time.
    """

    def __init__(self, meter: TimeMeter, folder: str | None):
        self.time_use = TimeUse(())
        self.remark = ""
        self._meter, self._folder = meter, folder
        self._gathered_at = time.monotonic()
        self._recent, self._recent_times = TimeUse(()), RecentTimes(self._gathered_at)
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    @property
    def are_due(self) -> bool:
        """True if the last time was long enough ago."""
        return time.monotonic() - self._gathered_at >= GATHER_SECONDS

    def gather(self, step_runner: StepRunner, epoch: int) -> None:
        """Gathers the times after an epoch; the first one is 0.

        All processes of the cluster have to call this together.
        """
        before, self._gathered_at = self.time_use, time.monotonic()
        row = encode(task_from_environment(os.environ), self._meter.seconds(), self._meter.counters())
        self.time_use = summarize(decode(step_runner.gather(row)))
        recent_before = self._recent
        self._recent = self._recent_times.add(self._gathered_at, self.time_use.processes)
        is_new = (self._recent.slowest, self._recent.reason) != (recent_before.slowest, recent_before.reason)
        self.remark = self._recent.describe() if is_new else ""
        if self._folder:
            self._write(before, epoch)

    def _write(self, before: TimeUse, epoch: int) -> None:
        seconds_before = {process.task: process.seconds for process in before.processes}
        for process in self.time_use.processes:
            spent = process.since(seconds_before.get(process.task, {}))
            if process.task not in self._writers:
                self._writers[process.task] = tf.summary.create_file_writer(f"{self._folder}/processes/{process.task}")
            with self._writers[process.task].as_default(step=epoch):
                for activity in process.seconds:
                    tf.summary.scalar(f"time/{activity}", spent.share(activity))
            self._writers[process.task].flush()


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

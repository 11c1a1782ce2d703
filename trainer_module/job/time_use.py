"""Says how training processes spent their time, and which of them is the slowest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

# What a process's main thread spends its time on, in the order in which it is shown.
# `wait_for_peers` is the sum of gradients over processes, in which a fast process waits
# for a slow one; `start` is all before the first step but tracing; `other` are
# callbacks and reports.
ACTIVITIES = ("start", "input", "compute", "wait_for_peers", "save", "evaluate", "trace", "other")
WAIT = "wait_for_peers"
# Names of `ProcessTime.counters`: the processor time of all threads of a process, the
# time in which its threads could have run but other threads had the cores, the time
# for which something on its machine waited for a disk, and the bytes that it read.
COUNTERS = ("cpu_seconds", "cpu_wait_seconds", "disk_wait_seconds", "bytes_read")
# A process is named as the slowest if the others wait for it for more than this share
# of the time, and longer than this: one may just have started later, or traced longer.
HOLDS_BACK_SHARE = 0.1
HOLDS_BACK_SECONDS = 2.0

_TITLES = {"start": "starting", WAIT: "waiting for peers", "save": "saving", "evaluate": "evaluation", "trace": "tracing"}
# Bytes that a process may read besides its examples, such as modules that it imports.
_OTHER_FILES = 16 << 20

# Why a process is slower than the others: an activity, or one of these.
BUSY_CORE, SLOW_DISK, UNEVEN_SHARDS = "busy_core", "slow_disk", "uneven_shards"
_REASONS = {
    "input": "its input takes longer: look at its storage, and the functions that read and augment examples",
    "compute": "it computes longer: look at its processor or accelerator, which may be another model, hot, or shared",
    BUSY_CORE: "its threads wait for a core: give it more cores, or stop what else runs there",
    SLOW_DISK: "it waits for its disk: put the examples on faster storage, or cache them",
    UNEVEN_SHARDS: "it reads more of the files than the others: write num_shards as a multiple of num_workers",
    "save": "it saves longer: look at the storage of checkpoint_dir",
    "evaluate": "it evaluates longer",
    "trace": "it traces the model longer",
    "start": "it starts later",
    "other": "its callbacks take longer",
}


@dataclass(frozen=True)
class ProcessTime:
    """How one training process spent its time.

    Attributes:
      task: The process, as in names of files: `chief-0`, `worker-1`.
      seconds: Seconds by activity, one of `ACTIVITIES`, since its try began to train.
      counters: Numbers by name, one of `COUNTERS`, over the same time; those that the
        machine counts.
    """

    task: str
    seconds: Mapping[str, float]
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Seconds over all activities."""
        return sum(self.seconds.values())

    def since(self, before: Mapping[str, float], counters: Mapping[str, float]) -> "ProcessTime":
        """Returns the time since a moment with these seconds and counters."""
        return ProcessTime(
            self.task,
            {name: value - before.get(name, 0.0) for name, value in self.seconds.items()},
            {name: value - counters.get(name, 0.0) for name, value in self.counters.items()},
        )

    def share(self, activity: str) -> float:
        """Returns the part of the time that an activity takes, from 0 to 1."""
        return self.seconds.get(activity, 0.0) / self.total if self.total else 0.0

    def rate(self, counter: str) -> float:
        """Returns a counter per second."""
        return self.counters.get(counter, 0.0) / self.total if self.total else 0.0


@dataclass(frozen=True)
class TimeUse:
    """How the processes of a training spent their time.

    Attributes:
      processes: The time of each process.
      slowest: The process that holds the others back, as in `ProcessTime.task`; empty
        if none does by more than `HOLDS_BACK_SHARE` and `HOLDS_BACK_SECONDS`.
      held_back: The part of the time for which the others wait for it, from 0 to 1.
      reason: The likely reason: one of `ACTIVITIES`, `busy_core`, `slow_disk` or
        `uneven_shards`; empty without a slowest process.
    """

    processes: tuple[ProcessTime, ...]
    slowest: str = ""
    held_back: float = 0.0
    reason: str = ""

    def share(self, activity: str) -> float:
        """Returns the mean over the processes of the part that an activity takes."""
        return sum(process.share(activity) for process in self.processes) / max(1, len(self.processes))

    def describe(self) -> str:
        """Returns one line about the slowest process; empty without one."""
        if not self.slowest:
            return ""
        share = f"{self.held_back:.0%}".replace("%", " %")
        return f"{title(self.slowest)} holds the others back for {share} of the time: {_REASONS[self.reason]}"


def format_shares(shares: Mapping[str, float]) -> str:
    """Formats where time went: `compute 62 %, input 20 %`, the largest share first.

    Shares are from 0 to 1; those below 1 percent are left out.
    """
    known = sorted(((share, name) for name, share in shares.items() if share >= 0.01), reverse=True)
    return ", ".join(f"{_TITLES.get(name, name)} {100 * share:.0f} %" for share, name in known)


def title(task: str) -> str:
    """Returns the name of a process for people: `worker 0` for `worker-0`."""
    role, _, index = task.rpartition("-")
    return role if role == "chief" else f"{role} {index}"


def summarize(processes: Sequence[ProcessTime]) -> TimeUse:
    """Finds the process that the others wait for, and the likely reason.

    Processes that train in step take the same time for a step. One that waits little
    for its peers is one that they wait for. All processes are of one try; those that
    have not trained are left out.
    """
    known = tuple(process for process in processes if process.total > 0)
    if len(known) < 2:
        return TimeUse(known)
    # Where waiting is not measured, as on accelerators, it is part of the computation.
    waiting = WAIT if any(WAIT in process.seconds for process in known) else "compute"
    slowest = min(known, key=lambda process: process.share(waiting))
    others = [process for process in known if process is not slowest]
    held_back = median(process.share(waiting) for process in others) - slowest.share(waiting)
    seconds = held_back * max(process.total for process in known)
    if held_back <= HOLDS_BACK_SHARE or seconds <= HOLDS_BACK_SECONDS:
        return TimeUse(known)
    return TimeUse(known, slowest.task, held_back, _likely_reason(slowest, others))


def _likely_reason(slowest: ProcessTime, others: Sequence[ProcessTime]) -> str:
    """Finds what a process does longer than the others, and what its machine counts."""

    def excess(rate: str) -> float:
        return slowest.rate(rate) - median(process.rate(rate) for process in others)

    longer = {
        activity: slowest.share(activity) - median(process.share(activity) for process in others)
        for activity in ACTIVITIES
        if activity != WAIT
    }
    activity = max(longer, key=lambda name: longer[name])
    if activity not in ("input", "compute"):
        return activity
    bytes_read = median(process.counters.get("bytes_read", 0.0) for process in others)
    if activity == "input" and slowest.counters.get("bytes_read", 0.0) > 1.5 * bytes_read + _OTHER_FILES:
        return UNEVEN_SHARDS
    if excess("disk_wait_seconds") > longer[activity] / 2:
        return SLOW_DISK
    if excess("cpu_wait_seconds") > longer[activity]:  # a sum over threads
        return BUSY_CORE
    return activity

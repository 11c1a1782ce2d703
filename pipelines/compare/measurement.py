"""Measures a training from its history."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.job.time_use import WAIT, ProcessTime, TimeUse, summarize
from tfx_distribute.trainer_module.reporting.progress import Progress

# What a training step consists of. Others, such as tracing, are not part of its speed.
STEP_ACTIVITIES = ("input", "compute", WAIT)


@dataclass(frozen=True)
class Measurement:
    """A measured training, without its first epoch, the warm-up.

    Attributes:
      batch: Examples per training step, over all processes.
      seconds: Time of the training steps.
      examples_per_second: Speed over all processes.
      input_share: Part of a step in which it waits for examples, from 0 to 1; None if
        unknown.
      wait_share: Part of a step in which a process waits for the others; None if
        unknown, or if there are none.
      loss: Mean training loss of the last epoch; None if unknown.
      slowest: One line about the process that holds the others back; empty if none.
    """

    batch: int
    seconds: float
    examples_per_second: float
    input_share: float | None = None
    wait_share: float | None = None
    loss: float | None = None
    slowest: str = ""


def measure(records: Sequence[Progress]) -> Measurement:
    """Measures a training by its history, in order of time."""
    chief = CHIEF_TASK.file_name
    epochs = [record for record in records if record.task == chief and record.phase == "epoch"]
    if len(epochs) < 2:
        raise TrainingError(f"it ended after {epochs[-1].step if epochs else 0} training steps, too few to measure")
    warmup, last = epochs[0], epochs[-1]
    time_use = _measure_time(records, warmup.time, last.time)
    seconds = next((each.total for each in time_use.processes if each.task == chief), last.time - warmup.time)
    waits = len(time_use.processes) > 1 and any(WAIT in each.seconds for each in time_use.processes)
    return Measurement(
        batch=last.global_batch_size,
        seconds=seconds,
        examples_per_second=(last.step - warmup.step) * last.global_batch_size / seconds,
        input_share=time_use.share("input") if time_use.processes else None,
        wait_share=time_use.share(WAIT) if waits else None,
        loss=last.metrics.get("loss"),
        slowest=time_use.describe(),
    )


def _measure_time(records: Sequence[Progress], start: float, end: float) -> TimeUse:
    """Returns how the processes spent their time in training steps."""
    processes = []
    for task in sorted({record.task for record in records}):
        timed = [record for record in records if record.task == task and record.seconds and record.time <= end]
        before = next((record for record in reversed(timed) if record.time <= start), None)
        if before:
            seconds = {name: timed[-1].seconds[name] for name in STEP_ACTIVITIES if name in timed[-1].seconds}
            processes.append(ProcessTime(task, seconds, timed[-1].counters).since(before.seconds, before.counters))
    return summarize(processes)

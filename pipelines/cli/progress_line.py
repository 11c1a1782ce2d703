"""Formats the progress of a training or of a Beam pipeline as one line.

Pure functions; `console` shows the lines.
"""

from collections.abc import Mapping

from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.job.time_use import ProcessTime, summarize
from tfx_distribute.trainer_module.reporting.progress import Progress


def format_training_line(tasks: Mapping[ClusterTask, Progress], left: float | None = None) -> str:
    """Formats a cluster's progress; `left` is the seconds until its last step."""
    chief = tasks.get(CHIEF_TASK) or next(iter(tasks.values()))
    if chief.phase == "start":
        return "starting " + ", ".join(map(str, tasks))
    if chief.phase == "run_fn":
        return chief.activity or "run_fn"
    if chief.phase in ("export", "done"):
        return "writing the model"
    parts = [f"epoch {chief.epoch}/{chief.epochs}"] if chief.epochs > 1 else []
    parts.append(f"step {chief.step}/{chief.train_steps}")
    if chief.metrics and "loss" in chief.metrics:
        parts.append(f"loss {chief.metrics['loss']:.4f}")
    rate = sum(progress.examples_per_second for progress in tasks.values())
    if rate:
        parts.append(f"{rate:,.0f} examples/s")
    if chief.learning_rate is not None:
        parts.append(f"learning rate {chief.learning_rate:.3g}")
    if left is not None:
        parts.append(f"{format_seconds(left)} left")
    if len(tasks) > 1:
        steps = {task: "serves" if each.phase == "serve" else each.step for task, each in tasks.items()}
        parts.append(" ".join(f"{task}: {step}" for task, step in steps.items()))
        time_use = summarize([ProcessTime(task.file_name, progress.seconds) for task, progress in tasks.items()])
        if time_use.slowest:
            parts.append(f"slowest: {time_use.slowest.replace('-', ' ')} ({time_use.reason})")
    return "  ".join(parts)


def format_seconds(seconds: float) -> str:
    """Formats a duration: `45 s`, `12 min`, `3 h 05 min`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


class TimeLeft:
    """Estimates how long training still takes, from its speed since it began.

    The first report after a start comes after the first step, which includes tracing
    and is therefore not counted.
    """

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def add(self, now: float, progress: Progress) -> float | None:
        """Returns the seconds until the last step; None if they are not known yet."""
        if progress.phase != "train":
            self._first = None
            return None
        if self._first is None or progress.step < self._first[1]:  # of a new try
            self._first = (now, progress.step) if progress.metrics else None
            return None
        began, first_step = self._first
        if progress.step == first_step:
            return None
        return (progress.train_steps - progress.step) * (now - began) / (progress.step - first_step)

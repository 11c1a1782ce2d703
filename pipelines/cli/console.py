"""What a person sees of a run: nodes as they finish, a line that lives while training, results."""

import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tfx_distribute.pipelines.spec.pipeline import Metric, PipelineSpec
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.lifecycle.progress import Progress

if TYPE_CHECKING:
    from tfx_distribute.pipelines.runners.local.results import MetricResult, RunResult

PLAIN_SECONDS = 5.0  # between two training lines where the output is no terminal


@contextmanager
def output_to(log: Path, verbose: bool) -> Iterator[Console]:
    """Sends whatever is printed in this process, by C++ code too, to a file; a person gets a console of their own.

    Args:
      log: The file.
      verbose: Whether the person sees the log too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    shown = io.TextIOWrapper(io.BufferedWriter(_Display(os.dup(kept[0]), "w")), encoding="utf-8", errors="backslashreplace")
    console = Console(file=shown, highlight=False, soft_wrap=True)
    stop = threading.Event()
    follower = threading.Thread(target=_follow, args=(log, console, stop), daemon=True)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        if verbose:
            follower.start()
        yield console
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, file):
            os.close(descriptor)
        stop.set()
        if verbose:
            follower.join()


class _Display(io.FileIO):
    """Standard output of a run, which goes on when its reader has left or its disk is full."""

    def write(self, text: Any) -> int:
        try:
            return super().write(text) or len(text)  # None if the reader of a non-blocking pipe is slow
        except OSError:
            return len(text)


def _follow(log: Path, console: Console, stop: threading.Event) -> None:
    with log.open(encoding="utf-8", errors="replace") as file:
        last = False
        while not last:
            last = stop.wait(0.2)
            _print_new(file, console)


def _print_new(file: IO[str], console: Console) -> None:
    text = file.read()
    if text:
        console.print(Text(text.rstrip("\n"), style="dim"))


class RunView:
    """Shows a run on a console: a line for each node that is done, and one that lives below them."""

    def __init__(self, console: Console):
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        self._node = ""
        self._began = 0.0
        self._tasks: dict[ClusterTask, Progress] = {}
        self._printed = 0.0

    def __enter__(self) -> "RunView":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def node_started(self, node: str) -> None:
        """A node begins."""
        self._node, self._began = node, time.monotonic()
        self._tasks.clear()
        self._show()

    def node_ended(self, node: str, seconds: float, cached: bool) -> None:
        """A node is done."""
        took = Text("cached", "cyan") if cached else Text(f"{seconds:.1f} s")
        self._console.print(Text.assemble(("  ✓ ", "green"), f"{node:<24}", took))
        self._node = ""
        self._show()

    def node_failed(self, node: str) -> None:
        """A node failed."""
        self._console.print(Text.assemble(("  ✗ ", "red"), f"{node:<24}", ("failed", "red")))

    def training(self, task: ClusterTask, progress: Progress) -> None:
        """A training process reports."""
        before = self._tasks.get(task)
        if before and not progress.metrics:
            progress = Progress(**{**vars(progress), "metrics": before.metrics})
        self._tasks[task] = progress
        if progress.message and task == CHIEF_TASK:
            self._console.print(Text(f"    {progress.message}"))
        self._show()
        now = time.monotonic()
        if not self._live and task == CHIEF_TASK and now - self._printed >= PLAIN_SECONDS and progress.phase == "train":
            self._printed = now
            self._console.print(Text(f"    {training_line(self._tasks)}"))

    def _show(self) -> None:
        if not self._live:
            return
        if not self._node:
            self._live.update("")
            return
        line = training_line(self._tasks) if self._tasks else ""
        self._live.update(Spinner("dots", Text(f"{self._node:<24}{line}")))


def training_line(tasks: dict[ClusterTask, Progress]) -> str:
    """One line for a cluster that trains: step, loss, examples per second, and where each process is."""
    chief = tasks.get(CHIEF_TASK) or next(iter(tasks.values()))
    if chief.phase == "start":
        return "starting " + ", ".join(map(str, tasks))
    if chief.phase in ("export", "done"):
        return "writing the model"
    parts = [f"step {chief.step}/{chief.train_steps}"]
    if chief.metrics and "loss" in chief.metrics:
        parts.append(f"loss {chief.metrics['loss']:.4f}")
    rate = sum(progress.examples_per_second for progress in tasks.values())
    if rate:
        parts.append(f"{rate:,.0f} examples/s")
    if len(tasks) > 1:
        parts.append(" ".join(f"{task}: {_place(progress)}" for task, progress in tasks.items()))
    return "  ".join(parts)


def _place(progress: Progress) -> str:
    """Where one process is: which step it has taken, if it takes any."""
    if progress.phase == "serve":
        return "serves"
    return f"epoch {progress.step}" if progress.phase == "evaluate" else str(progress.step)


def header(spec: PipelineSpec) -> Text:
    """The line above a run."""
    parameters = spec.trainer.parameters
    workers = f", {parameters.num_workers} workers" if parameters.num_workers > 1 else ""
    return Text.assemble((spec.name, "bold"), f"  strategy {parameters.strategy}{workers}")


def summary(result: "RunResult") -> Text:
    """What came of a run: how it trained, metrics against thresholds, where the model is."""
    rows: list[tuple[str, Text | str]] = []
    training = result.training
    if "strategy" in training:
        batch = training.get("global_batch_size")
        size = f", global batch {batch}" if batch else ""
        steps = f", {training['train_steps']} steps" if training.get("train_steps") else ""
        replicas = "1 replica" if training["num_replicas"] == 1 else f"{training['num_replicas']} replicas"
        rows.append(("trained", f"{training['strategy']}, {replicas}{size}{steps}"))
    values = [f"{found.value:.6g}" for found in result.metrics]
    column = max(map(len, values), default=0) + 2
    for found, value in zip(result.metrics, values, strict=True):
        rows.append((found.name, Text.assemble(f"{value:<{column}}", _thresholds(found.metric), _verdict(found))))
    if result.unusable_baseline:
        rows.append(
            ("baseline", f"not compared with the latest blessed model: its {result.unusable_baseline} is not finite")
        )
    if result.pushed:
        rows.append(("model", result.pushed))
    elif result.blessed is False:
        rows.append(("model", Text.assemble(("not pushed", "red"), f": thresholds are not met; it is in {result.model}")))
    else:
        rows.append(("model", result.model))
    width = max(len(name) for name, _ in rows) + 2
    return Text("\n").join(Text.assemble(f"{name:<{width}}", value) for name, value in rows)


def _verdict(found: "MetricResult") -> Text:
    if not found.metric.has_threshold:
        return Text()
    if not found.failed_on:
        return Text("met", "green")
    if "" in found.not_finite_on:
        return Text("not met: the value is not finite", "red")
    slices = [where for where in found.failed_on if where]
    if not slices:
        return Text("not met", "red")
    some = ", ".join(slices[:3]) + (", ..." if len(slices) > 3 else "")
    where = f"{len(slices)} slice{'s' if len(slices) > 1 else ''} ({some})"
    reason = f"; not finite on {len(found.not_finite_on)} of them" if found.not_finite_on else ""
    return Text((f"not met, also on {where}" if "" in found.failed_on else f"not met on {where}") + reason, "red")


def _thresholds(metric: Metric) -> str:
    parts = []
    if metric.lower_bound is not None:
        parts.append(f">= {metric.lower_bound:g}")
    if metric.upper_bound is not None:
        parts.append(f"<= {metric.upper_bound:g}")
    if metric.change is not None:
        bounds = [
            f"{value:+g}{unit}"
            for value, unit in ((metric.change.absolute, ""), (metric.change.relative, "x"))
            if value is not None
        ]
        parts.append(f"change {' and '.join(bounds)}")
    return f"{', '.join(parts)}  " if parts else ""

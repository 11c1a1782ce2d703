"""Shows a run on a terminal: finished nodes, training progress and results."""

import io
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tfx_distribute.components.launchers.progress_log import LOG_SECONDS, log_interval
from tfx_distribute.pipelines.cli import terminal
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.job.time_use import ProcessTime, summarize
from tfx_distribute.trainer_module.reporting.progress import Progress

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.local.paths import RunPaths
    from tfx_distribute.pipelines.targets.local.results import Fact

_PACKAGE = "tfx_distribute"  # its loggers' warnings are for users; absl's are not
BAR_WIDTH = 20


@contextmanager
def redirect_output(log: Path, to_stderr: bool = False, quiet: bool = False) -> Iterator[Console]:
    """Redirects this process's output to a file, and yields a console for the user.

    Output of C++ code is redirected, too, and that of a notebook, whose streams are not
    the process's own.

    The console writes to the original standard output, or with `to_stderr` to standard
    error, because standard output is for a program. `quiet` shows nothing.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    original_stdout, original_stderr = os.dup(1), os.dup(2)
    log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    stream: IO[str] = sys.stderr if to_stderr else sys.stdout
    if _is_own(stream):
        display = io.BufferedWriter(_Display(os.dup(stream.fileno()), "w"))
        stream = io.TextIOWrapper(display, encoding="utf-8", errors="backslashreplace")
    console = SafeConsole(file=stream, highlight=False, soft_wrap=True, quiet=quiet)
    try:
        os.dup2(log_descriptor, 1)
        os.dup2(log_descriptor, 2)
        with _streams_redirected(log):
            yield console
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(original_stdout, 1)
        os.dup2(original_stderr, 2)
        for descriptor in (original_stdout, original_stderr, log_descriptor):
            os.close(descriptor)


def _is_own(stream: Any) -> bool:
    """Returns True for a stream of the process itself, not a notebook's or a test's."""
    try:
        return stream.fileno() in (1, 2)
    except (AttributeError, OSError):
        return False


@contextmanager
def _streams_redirected(log: Path) -> Iterator[None]:
    """Redirects Python's streams, also a notebook's, and log handlers with them."""
    streams = (sys.stdout, sys.stderr)
    with log.open("a", encoding="utf-8", errors="backslashreplace", buffering=1) as file:
        _switch_handlers(streams, file)
        try:
            with redirect_stdout(file), redirect_stderr(file):
                yield
        finally:
            _switch_handlers((file,), sys.stderr)  # those of modules that were imported here, too


class _Display(io.FileIO):
    """Standard output that ignores errors.

    A run goes on, or ends as it was told to, when its terminal or reader has gone.
    """

    def write(self, text: Any) -> int:
        try:
            return super().write(text) or len(text)  # write() returns None for a full non-blocking pipe
        except OSError:
            return len(text)


def _switch_handlers(streams: tuple[Any, ...], to: Any) -> None:
    loggers = (each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger))
    for handler in (handler for logger in (logging.root, *loggers) for handler in logger.handlers):
        handler = getattr(handler, "python_handler", handler)  # absl's
        if isinstance(handler, logging.StreamHandler) and handler.stream in streams:
            with suppress(AttributeError):  # such as dill's, which follows sys.stderr by itself
                handler.setStream(to)


class _WarningLines(logging.Handler):
    def __init__(self, console: Console):
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(f"    {record.getMessage()}", style="yellow", markup=False)


class SafeConsole(Console):
    """A console that prints control characters of texts as escapes, but has its own."""

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Renders like `Console`."""
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else segment._replace(text=terminal.escape(segment.text))


class RunView:
    """Shows a run on a console: a line for each finished node, and a live line below.

    On an output that is not a terminal, lines are printed at growing intervals instead;
    see `progress_log.log_interval`.
    """

    def __init__(self, console: Console):
        self._console = console
        is_live = console.is_terminal and not console.quiet  # else Live would swallow what user code prints
        self._live = Live(console=console, refresh_per_second=8, transient=True) if is_live else None
        self._node = ""
        self._tasks: dict[ClusterTask, Progress] = {}
        self._time_left = TimeLeft()
        self._left: float | None = None
        self._stages = (0, 0)
        self._started = self._last_printed = 0.0
        self._warnings = _WarningLines(self._console)

    def __enter__(self) -> "RunView":
        logging.getLogger(_PACKAGE).addHandler(self._warnings)
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        logging.getLogger(_PACKAGE).removeHandler(self._warnings)

    def on_node(self, node: str, seconds: float | None = None, cached: bool = False) -> None:
        """Shows that a node has started, or prints the line of a finished one."""
        if seconds is None:
            self._node, self._started, self._stages = node, time.monotonic(), (0, 0)
            self._last_printed = self._started
            self._tasks.clear()
        else:
            duration = Text("cached", "cyan") if cached else Text(f"{seconds:.1f} s")
            self._console.print(Text.assemble(("  ✓ ", "green"), f"{node:<22}  ", duration))
            self._node = ""
        self._show()

    def node_failed(self, node: str, reason: str = "failed") -> None:
        """Prints the line of a failed node."""
        self._console.print(Text.assemble(("  ✗ ", "red"), f"{node:<22}  ", (reason, "red")))

    def training_progressed(self, task: ClusterTask, progress: Progress) -> None:
        """Shows the progress of a training process."""
        if not self._tasks:  # the first line of a training comes at once
            self._last_printed -= LOG_SECONDS
        previous = self._tasks.get(task)
        if previous and not progress.metrics:
            progress = replace(progress, metrics=previous.metrics)
        self._tasks[task] = progress
        if task == CHIEF_TASK:
            left = self._time_left.add(time.monotonic(), progress)
            self._left = left if left is not None or progress.phase != "train" else self._left
            if progress.message:
                self._console.print(Text(f"    {progress.message}"))
        self._show()
        if task == CHIEF_TASK and progress.phase in ("train", "run_fn"):
            self._print_if_due()

    def beam_progressed(self, done: int, total: int) -> None:
        """Shows how many stages of the node's Beam pipeline are done."""
        self._stages = (done, total)
        self._show()
        self._print_if_due()

    def _print_if_due(self) -> None:
        now = time.monotonic()
        if not self._live and now - self._last_printed >= log_interval(now - self._started):
            self._last_printed = now
            line = self._line()
            self._console.print(Text(f"    {line}" if self._tasks else f"    {self._node}: {line}"))

    def _line(self) -> str:
        if self._tasks:
            return format_training_line(self._tasks, self._left)
        done, total = self._stages
        return f"stage {done} of {total}, {format_seconds(time.monotonic() - self._started)}" if total else ""

    def _show(self) -> None:
        if not self._live:
            return
        if not self._node:
            self._live.update("")
            return
        chief = self._tasks.get(CHIEF_TASK)
        done, total = (chief.step, chief.train_steps) if chief else self._stages
        row = Table.grid(padding=(0, 1))
        cells: list[RenderableType] = [Spinner("dots"), f"{self._node:<24}", self._line()]
        if total:
            cells.insert(2, ProgressBar(total=total, completed=done, width=BAR_WIDTH))
        row.add_row(*cells)
        self._live.update(row)


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


def print_data(console: Console, paths: "RunPaths", node: str) -> None:
    """Prints spans, examples that were left out and anomalies, if a node found some."""
    from tfx_distribute.pipelines.targets.local import report, runs

    run = runs.find([paths.root], paths.run_id)
    is_validator = node == "ExampleValidator"
    facts = {"anomalies": report.describe_anomalies(run)} if is_validator else run.data
    for name, text in facts.items():
        if text:
            console.print(f"    {name:<10} {text}", style="yellow" if is_validator else None, markup=False)


@contextmanager
def showing_run(spec: PipelineSpec, paths: "RunPaths", **options: bool) -> Iterator[Console]:
    """Redirects output to a run's log; prints a line above and commands below it."""
    parameters = spec.trainer.parameters
    workers = f", {parameters.num_workers} workers" if parameters.num_workers > 1 else ""
    with redirect_output(paths.log, **options) as console:
        console.print(Text.assemble((spec.name, "bold"), f"  strategy {parameters.strategy}{workers}"))
        try:
            yield console
        finally:
            print_commands(console, paths)


def print_commands(console: Console, paths: "RunPaths") -> None:
    """Prints the commands that show a run, and its log."""
    from tfx_distribute.pipelines.targets.local import results, runs
    from tfx_distribute.trainer_module.errors import ConfigurationError

    try:
        shown = results.list_commands(runs.find([paths.root], paths.run_id))
    except ConfigurationError:  # it did not come to its first node
        shown = {"log": str(paths.log)}
    for name, text in shown.items():
        console.print(f"{name:<8} {text}", markup=False)


def format_facts(facts: "Sequence[Fact]") -> Text:
    """Formats facts about a run, one per line."""
    name_width = max((len(fact.name) for fact in facts), default=0) + 2
    width = max((len(fact.text) for fact in facts if fact.verdict), default=0) + 2
    lines = []
    for fact in facts:
        cells = (f"{fact.text:<{width}}", (fact.verdict, fact.color)) if fact.verdict else ((fact.text, fact.color),)
        lines.append(Text.assemble(f"{fact.name:<{name_width}}", *cells))
    return Text("\n").join(lines)

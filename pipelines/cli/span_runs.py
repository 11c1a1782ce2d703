"""Skips a run without new data, and runs a pipeline for each of several spans."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfx_distribute.pipelines.cli.options import NOT_BLESSED, refuse, refusing_errors
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from tfx_distribute.pipelines.spec.pipeline import Data

# States of runs that are not repeated for the same span -> what they did. Those that
# failed may succeed.
_ENDS = {"complete": "has read it", "stopped": "has rejected it; without --if-new, it is read again"}


def find_run_of_newest(data: "Data", root: Path) -> str:
    """Describes the run that read or rejected the newest span; empty if none did."""
    from tfx_distribute.pipelines.spec import data_checks
    from tfx_distribute.pipelines.targets.local import runs

    if not data.has_spans:
        refuse("--if-new: needs data with spans; write {YYYY}, {MM} and {DD}, or {SPAN} in the path of their source")
    with refusing_errors():
        newest = data_checks.choose_spans(data).names[-1]
        for name, read in runs.list_newest_spans(root):
            state = runs.find([root], name).state if read == newest else ""
            if state in _ENDS:
                return f"{newest} is the newest, and run {name} {_ENDS[state]}"
    return ""


def run_each(data: "Data", backfill: str) -> int:
    """Runs this command once for each span, the oldest first, up to one that fails.

    `backfill` is `FIRST..LAST`. Returns the exit code of the last run.
    """
    from tfx_distribute.components.example_gen import spans
    from tfx_distribute.components.launchers.sigterm import TerminatedError, terminable

    path, (first, _, last) = data.source[1], backfill.partition("..")
    names, missing = [], []
    try:
        there = spans.find(path)
        for number in range(spans.parse(path, first), spans.parse(path, last) + 1):
            name = spans.name_of(path, number)
            if number in there or data.missing == "fail":
                spans.choose(path, dataclasses.replace(data.spans_window, last=name))
                names.append(name)
            else:
                missing.append(name)
    except (ConfigurationError, DataError) as error:
        refuse(f"--backfill: {error}")
    if not names:
        refuse(f"--backfill: {backfill} contains no span; write FIRST..LAST, e.g. 2026-11-01..2026-11-25")
    if missing:
        click.echo(f"without {', '.join(missing)}, which have no data")
    words, code = _without_backfill(sys.argv[1:]), 0
    for name in names:
        click.echo(f"span {name}")
        sys.stdout.flush()
        command = [sys.executable, "-m", "tfx_distribute.pipelines", *words, "-p", f"span={name}"]
        with terminable(), subprocess.Popen(command) as process:
            try:
                code = process.wait()
            except KeyboardInterrupt as interrupt:  # a Ctrl-C at the terminal has reached it too
                if isinstance(interrupt, TerminatedError):
                    process.terminate()
                code = process.wait()
        if code not in (0, NOT_BLESSED):
            break
    return code


def _without_backfill(words: list[str]) -> list[str]:
    kept = [word for word in words if not word.startswith("--backfill=")]
    if "--backfill" in kept:
        position = kept.index("--backfill")
        del kept[position : position + 2]
    return kept
